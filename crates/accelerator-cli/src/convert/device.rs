//! Chooses the device of a snapshot.

use std::collections::BTreeMap;

use super::ConvertError;

/// Returns the requested device, or otherwise the one with the most entries in its history, with a warning if other
/// devices have entries too. `entries` has the number of entries for each device in the snapshot.
pub(crate) fn chosen(entries: &BTreeMap<u32, u64>, wanted: Option<u32>) -> Result<(u32, Option<String>), ConvertError> {
    if let Some(device) = wanted {
        let known = || entries.keys().copied().collect();
        return match entries.contains_key(&device) {
            true => Ok((device, None)),
            false if entries.is_empty() => Err(ConvertError::Empty),
            false => Err(ConvertError::NoSuchDevice { device, known: known() }),
        };
    }
    // Of devices with equally many entries, choose the first.
    let most = entries.iter().rev().max_by_key(|(_, count)| **count);
    let device = *most.ok_or(ConvertError::Empty)?.0;
    let recorded: Vec<_> =
        entries.iter().filter(|(_, count)| **count > 0).map(|(device, _)| device.to_string()).collect();
    let warning = (recorded.len() > 1).then(|| {
        let all = recorded.join(", ");
        format!("devices {all} have histories; using that of device {device}: --device chooses another")
    });
    Ok((device, warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_longest_histories() {
        let of = |counts: &[(u32, u64)]| {
            let (device, warning) = chosen(&counts.iter().copied().collect(), None).unwrap();
            (device, warning.is_some())
        };
        assert_eq!(of(&[(0, 3), (2, 7), (3, 7)]), (2, true));
        assert_eq!(of(&[(1, 0), (4, 1)]), (4, false));
        assert_eq!(of(&[(1, 0), (4, 0)]), (1, false));
        assert!(matches!(chosen(&BTreeMap::new(), None), Err(ConvertError::Empty)));
    }
}
