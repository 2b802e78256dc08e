use super::source::{Source, SourceError};

macro_rules! bundled {
    ($name:literal, $about:literal) => {
        Bundled { name: $name, about: $about, file: include_bytes!(concat!("../../traces/", $name, ".trace.zst")) }
    };
}

/// Recorded traces of real models, which are part of the program.
pub const BUNDLED: [Bundled; 5] = [
    bundled!("gpt2_train", "GPT-2 small in training, 6 steps"),
    bundled!("gpt2_ddp_buckets", "GPT-2 small in training, gradients in buckets on a second stream"),
    bundled!("gpt2_fsdp_emulated", "GPT-2 small in training, parameters gathered on a second stream"),
    bundled!("resnet50_train", "ResNet-50 in training"),
    bundled!("maskrcnn_train", "Mask R-CNN in training, images of varying sizes"),
];

/// A bundled trace.
#[derive(Clone, Copy, Debug)]
pub struct Bundled {
    /// Its name.
    pub name: &'static str,
    /// What was recorded.
    pub about: &'static str,
    /// The compressed file.
    pub file: &'static [u8],
}

impl Bundled {
    /// Returns the bundled trace with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BUNDLED.iter().find(|trace| trace.name == name)
    }

    /// Returns its lines.
    ///
    /// # Errors
    /// Fails only if the program file is damaged.
    pub fn source(&self) -> Result<Source, SourceError> {
        Source::from_bytes(&format!("{} (bundled)", self.name), self.file)
    }
}
