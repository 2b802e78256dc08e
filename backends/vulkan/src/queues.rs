//! Which queues of a device the streams use.

use std::fmt;

use accelerator_core::Unavailable;
use accelerator_core::backend_kit::read_variable;
use ash::vk;

const QUEUES: &str = "ACCELERATOR_VULKAN_QUEUES";
/// The number of queues to use if the environment gives none. Further streams share them.
const USUAL: u32 = 8;

/// A choice of queues: `compute`, `graphics` or the number of a family, and the largest number of queues after a colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    family: Family,
    at_most: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// Without graphics, if there is such a family: such queues run beside those that draw.
    Compute,
    Graphics,
    Number(u32),
}

/// Queues of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    pub(crate) family: u32,
    pub(crate) count: u32,
    /// The number of bits of a timestamp; 0 if these queues write none.
    pub(crate) timestamp_bits: u32,
}

impl Choice {
    /// Reads the choice from the environment.
    pub(crate) fn read() -> Result<Self, Unavailable> {
        let expected = "`compute`, `graphics` or the number of a queue family, and after a colon the largest number of \
                        queues, such as compute:4";
        let usual = Self { family: Family::Compute, at_most: USUAL };
        read_variable(QUEUES, expected, Self::parse).map(|choice| choice.unwrap_or(usual))
    }

    fn parse(text: &str) -> Option<Self> {
        let (family, at_most) = text.split_once(':').unwrap_or((text, ""));
        let at_most = if at_most.is_empty() { USUAL } else { at_most.parse().ok().filter(|number| *number > 0)? };
        let family = match family.to_ascii_lowercase().as_str() {
            "" | "compute" => Family::Compute,
            "graphics" => Family::Graphics,
            number => Family::Number(number.parse().ok()?),
        };
        Some(Self { family, at_most })
    }

    /// Chooses among the families of a device.
    ///
    /// # Errors
    /// Why none of them is chosen, for people to read.
    pub(crate) fn of(self, families: &[vk::QueueFamilyProperties]) -> Result<Queues, String> {
        let with_kernels =
            (0..).zip(families).filter(|(_, family)| family.queue_flags.contains(vk::QueueFlags::COMPUTE));
        let with_kernels: Vec<(u32, _)> = with_kernels.collect();
        let wanted = with_kernels.iter().filter(|(number, family)| match self.family {
            Family::Compute => true,
            Family::Graphics => draws(family),
            Family::Number(wanted) => *number == wanted,
        });
        let best = wanted.max_by_key(|(number, family)| {
            // The first of those that are equally good: its number is the least.
            (family.timestamp_valid_bits > 0, !draws(family), family.queue_count, u32::MAX - number)
        });
        let Some((number, family)) = best else {
            if with_kernels.is_empty() {
                return Err("no queue family runs kernels".to_owned());
            }
            let numbers: Vec<_> = with_kernels.iter().map(|(number, _)| number.to_string()).collect();
            let (wanted, numbers) = (self.family, numbers.join(", "));
            return Err(format!("{QUEUES} asks for `{wanted}`, but the queue families that run kernels are {numbers}"));
        };
        Ok(Queues {
            family: *number,
            count: family.queue_count.min(self.at_most),
            timestamp_bits: family.timestamp_valid_bits,
        })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute => f.write_str("compute"),
            Self::Graphics => f.write_str("graphics"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Chooses the family and the number in it of a queue that binds memory, if the device has one. A queue works in order,
/// so it is one that no stream uses, if there is one.
pub(crate) fn for_binding(families: &[vk::QueueFamilyProperties], streams: &Queues) -> Option<(u32, u32)> {
    let binds = (0..).zip(families).filter(|(_, family)| family.queue_flags.contains(vk::QueueFlags::SPARSE_BINDING));
    let queues = binds.map(|(number, family)| {
        let is_theirs = number == streams.family;
        let first = if is_theirs { streams.count } else { 0 };
        let is_unused = first < family.queue_count;
        (is_unused, is_theirs, number, if is_unused { first } else { 0 })
    });
    queues
        .max_by_key(|(is_unused, is_theirs, ..)| (*is_unused, *is_theirs))
        .map(|(.., family, number)| (family, number))
}

fn draws(family: &vk::QueueFamilyProperties) -> bool {
    family.queue_flags.contains(vk::QueueFlags::GRAPHICS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &str) -> Option<(u32, u32)> {
        let family = |queue_flags, queue_count| vk::QueueFamilyProperties {
            queue_flags,
            queue_count,
            timestamp_valid_bits: 64,
            ..Default::default()
        };
        let (graphics, compute) = (vk::QueueFlags::GRAPHICS, vk::QueueFlags::COMPUTE);
        // As NVIDIA's driver lists them.
        let families = [
            family(graphics | compute | vk::QueueFlags::TRANSFER, 16),
            family(vk::QueueFlags::TRANSFER, 2),
            family(compute | vk::QueueFlags::TRANSFER, 8),
            family(compute, 4),
        ];
        let queues = Choice::parse(text)?.of(&families).ok()?;
        Some((queues.family, queues.count))
    }

    #[test]
    fn a_family_and_a_number_of_queues_are_chosen() {
        for (text, expected) in [
            ("compute", Some((2, 8))),
            ("", Some((2, 8))),
            (":3", Some((2, 3))),
            ("Graphics", Some((0, 8))),
            ("graphics:20", Some((0, 16))),
            ("3", Some((3, 4))),
            ("3:1", Some((3, 1))),
            ("1", None),
            ("4", None),
            ("compute:0", None),
            ("transfer", None),
        ] {
            assert_eq!(chosen(text), expected, "{text}");
        }
    }

    #[test]
    fn memory_is_bound_on_a_queue_that_no_stream_uses_if_there_is_one() {
        let family =
            |queue_flags, queue_count| vk::QueueFamilyProperties { queue_flags, queue_count, ..Default::default() };
        let (plain, binds) = (vk::QueueFlags::COMPUTE, vk::QueueFlags::COMPUTE | vk::QueueFlags::SPARSE_BINDING);
        let streams = |family, count| Queues { family, count, timestamp_bits: 0 };
        for (families, streams, expected) in [
            (vec![family(binds, 2), family(binds, 16)], streams(1, 8), Some((1, 8))),
            (vec![family(binds, 2), family(binds, 8)], streams(1, 8), Some((0, 0))),
            (vec![family(plain, 2), family(binds, 8)], streams(1, 8), Some((1, 0))),
            (vec![family(plain, 8), family(vk::QueueFlags::SPARSE_BINDING, 1)], streams(0, 8), Some((1, 0))),
            (vec![family(binds, 1)], streams(0, 1), Some((0, 0))),
            (vec![family(plain, 1)], streams(0, 1), None),
        ] {
            assert_eq!(for_binding(&families, &streams), expected, "{streams:?}");
        }
    }

    #[test]
    fn a_device_with_one_family_gives_what_it_has() {
        let only = vk::QueueFamilyProperties {
            queue_flags: vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE,
            queue_count: 1,
            ..Default::default()
        };
        let choice = Choice::parse("compute").unwrap_or_else(|| unreachable!("the default"));
        assert_eq!(choice.of(&[only]), Ok(Queues { family: 0, count: 1, timestamp_bits: 0 }));
        assert!(choice.of(&[]).is_err());
    }

    #[test]
    fn a_choice_that_no_family_meets_is_told_which_families_there_are() {
        let family = |queue_flags| vk::QueueFamilyProperties { queue_flags, queue_count: 1, ..Default::default() };
        let (copies, computes) = (family(vk::QueueFlags::TRANSFER), family(vk::QueueFlags::COMPUTE));
        let told = |text, families: &[_]| Choice::parse(text).and_then(|choice| choice.of(families).err());
        for (text, wanted) in [("graphics:2", "graphics"), ("0", "0")] {
            let reason = format!("{QUEUES} asks for `{wanted}`, but the queue families that run kernels are 1, 2");
            assert_eq!(told(text, &[copies, computes, computes]), Some(reason));
        }
        assert_eq!(told("graphics", &[copies]).as_deref(), Some("no queue family runs kernels"));
    }
}
