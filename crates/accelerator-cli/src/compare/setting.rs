//! The settings that are compared.

use accelerator_core::{AllocatorConfig, Error, Policy};

/// Settings with a name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) config: AllocatorConfig,
    /// A description of their effect, or empty if there is none.
    pub(crate) effect: &'static str,
    /// Whether the device has virtual memory.
    pub(crate) maps: bool,
}

/// A suffix of the names of settings that normally use virtual memory, but are compared without it.
const UNMAPPED: &str = ", no mapping";

/// The name of the default settings.
pub(crate) const DEFAULT: &str = "default";

/// The settings that are always compared, each with its effect. `garbage_collection_threshold` is not included: without
/// a memory fraction it has no effect, and with one the result depends on the fraction.
const COMPARED: [(&str, &str); 6] = [
    ("", "keeps memory from the device in segments of fixed size, split into blocks"),
    ("expandable_segments:True", "lets segments grow in place, so that adjacent free memory can serve larger requests"),
    ("policy:compact", "combines free memory from different places, and remembers what a repeated step needs"),
    (
        "policy:compact, no mapping",
        "uses large segments for requests of nearly all sizes, gives back unused ones before it allocates more, and \
         remembers what a repeated step needs",
    ),
    (
        "roundup_power2_divisions:8",
        "rounds sizes up to an eighth of a power of two, so that freed memory fits later requests",
    ),
    ("max_split_size_mb:128", "does not split blocks of 128 MiB and more, so that large requests find them whole"),
];

impl Setting {
    /// The name of the settings that a trace or a snapshot was recorded with.
    pub(crate) const RECORDED: &str = "as recorded";

    /// Returns the settings that are always compared, followed by `others`.
    ///
    /// # Errors
    /// Fails only if a built-in setting is invalid.
    pub(crate) fn compared(others: impl IntoIterator<Item = Self>) -> Result<Vec<Self>, Error> {
        let always = COMPARED.iter().map(|(name, effect)| {
            let text = name.strip_suffix(UNMAPPED);
            let read = Self::read(text.unwrap_or(name))?;
            Ok(Self {
                name: if name.is_empty() { read.name } else { (*name).to_owned() },
                effect,
                maps: text.is_none(),
                ..read
            })
        });
        let mut settings = always.collect::<Result<Vec<_>, Error>>()?;
        for other in others {
            if settings.iter().all(|setting| setting.config != other.config) {
                settings.push(other);
            }
        }
        Ok(settings)
    }

    /// Parses settings in the syntax of the environment variables.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`].
    pub(crate) fn read(text: &str) -> Result<Self, Error> {
        let config = AllocatorConfig::default().updated(text)?;
        let name = if text.trim().is_empty() { DEFAULT } else { text };
        Ok(Self { name: name.to_owned(), config, effect: "", maps: true })
    }

    /// Returns the settings as text.
    pub(crate) fn text(&self) -> &str {
        self.name.strip_suffix(UNMAPPED).unwrap_or(&self.name)
    }

    /// Returns the settings in the syntax of the environment variables, also those that have a name instead of a text.
    pub(crate) fn conf(&self) -> String {
        match self.name.as_str() {
            DEFAULT => String::new(),
            Self::RECORDED => self.config.to_string(),
            _ => self.text().to_owned(),
        }
    }

    /// Returns whether they have a different effect, or none, on a device without virtual memory.
    pub(crate) fn needs_virtual_memory(&self) -> bool {
        self.maps && (self.config.expandable_segments || self.config.policy == Policy::Compact)
    }
}
