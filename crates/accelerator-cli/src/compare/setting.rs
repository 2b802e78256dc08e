//! What is compared.

use accelerator_core::{AllocatorConfig, Error, Policy};

/// Settings, and what to call them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) config: AllocatorConfig,
    /// What it does for the memory, for a person; empty where that is not known.
    pub(crate) effect: &'static str,
    /// Whether the device has virtual memory.
    pub(crate) maps: bool,
}

/// Behind the name of settings that do much with virtual memory: what they do without it.
const UNMAPPED: &str = ", no mapping";

/// The name of no settings at all.
pub(crate) const DEFAULT: &str = "default";

/// The settings that are always compared, each with what it does. `garbage_collection_threshold` is not among them: without a
/// memory fraction it does nothing, and with one it is the fraction that decides.
const COMPARED: [(&str, &str); 6] = [
    ("", "keeps what it got from the device in segments of fixed size, cut into blocks"),
    (
        "expandable_segments:True",
        "lets segments grow in place, so that what comes free beside each other serves larger requests",
    ),
    (
        "policy:compact",
        "puts free memory together wherever it lies, and remembers what a repeated step needs",
    ),
    (
        "policy:compact, no mapping",
        "takes large segments for requests of nearly all sizes, gives idle ones back before it takes more, and remembers what a \
         repeated step needs",
    ),
    (
        "roundup_power2_divisions:8",
        "rounds sizes up to an eighth of a power of two, so that freed memory fits later requests",
    ),
    (
        "max_split_size_mb:128",
        "does not cut blocks of 128 MiB and more, so that large requests find them whole",
    ),
];

impl Setting {
    /// The name of the settings that a trace or a snapshot brings along.
    pub(crate) const RECORDED: &str = "as recorded";

    /// The settings that are always compared, and those that are wanted besides.
    ///
    /// # Errors
    /// None, as far as the program is whole.
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

    /// From a text in the notation of the environment.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`].
    pub(crate) fn read(text: &str) -> Result<Self, Error> {
        let config = AllocatorConfig::default().updated(text)?;
        let name = if text.trim().is_empty() { DEFAULT } else { text };
        Ok(Self { name: name.to_owned(), config, effect: "", maps: true })
    }

    /// The text to set.
    pub(crate) fn text(&self) -> &str {
        self.name.strip_suffix(UNMAPPED).unwrap_or(&self.name)
    }

    /// Whether it does something else, or nothing, on a device that cannot map memory.
    pub(crate) fn needs_virtual_memory(&self) -> bool {
        self.maps && (self.config.expandable_segments || self.config.policy == Policy::Compact)
    }
}
