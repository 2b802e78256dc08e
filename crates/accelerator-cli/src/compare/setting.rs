//! The settings that are compared.

use accelerator_core::{AllocatorConfig, Error, Policy};

/// Settings and their name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) config: AllocatorConfig,
    /// What they do for the memory, as text. Empty if unknown.
    pub(crate) effect: &'static str,
    /// Whether the device has virtual memory.
    pub(crate) maps: bool,
}

/// Added to the name of settings that rely on virtual memory: what they do without it.
const UNMAPPED: &str = ", no mapping";

/// The name of the default settings.
pub(crate) const DEFAULT: &str = "default";

/// The settings that are always compared, each with its effect. `garbage_collection_threshold` is not among them:
/// without a memory fraction it has no effect, and with one the fraction decides.
const COMPARED: [(&str, &str); 6] = [
    ("", "keeps what it got from the device in segments of fixed size, cut into blocks"),
    (
        "expandable_segments:True",
        "lets segments grow in place, so that what comes free beside each other serves larger requests",
    ),
    ("policy:compact", "puts free memory together wherever it lies, and remembers what a repeated step needs"),
    (
        "policy:compact, no mapping",
        "takes large segments for requests of nearly all sizes, gives idle ones back before it takes more, and remembers what a \
         repeated step needs",
    ),
    (
        "roundup_power2_divisions:8",
        "rounds sizes up to an eighth of a power of two, so that freed memory fits later requests",
    ),
    ("max_split_size_mb:128", "does not cut blocks of 128 MiB and more, so that large requests find them whole"),
];

impl Setting {
    /// The name of the settings that a trace or a snapshot was recorded with.
    pub(crate) const RECORDED: &str = "as recorded";

    /// The settings that are always compared, and `others`.
    ///
    /// # Errors
    /// None, unless the program is damaged.
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

    /// Reads settings in the notation of the environment.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`].
    pub(crate) fn read(text: &str) -> Result<Self, Error> {
        let config = AllocatorConfig::default().updated(text)?;
        let name = if text.trim().is_empty() { DEFAULT } else { text };
        Ok(Self { name: name.to_owned(), config, effect: "", maps: true })
    }

    /// The settings as text.
    pub(crate) fn text(&self) -> &str {
        self.name.strip_suffix(UNMAPPED).unwrap_or(&self.name)
    }

    /// Whether they have another effect, or none, on a device that cannot map memory.
    pub(crate) fn needs_virtual_memory(&self) -> bool {
        self.maps && (self.config.expandable_segments || self.config.policy == Policy::Compact)
    }
}
