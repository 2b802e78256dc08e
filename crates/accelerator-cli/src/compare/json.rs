//! Advice for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::advice::Advice;
use super::comparison::Row;

/// Sizes are in bytes.
#[derive(Serialize)]
struct Advised<'a> {
    job: &'a str,
    /// The advice for readers.
    text: String,
    /// The current settings.
    now: String,
    /// The recommended settings, or `None` to keep the current ones.
    set: Option<String>,
    settings: Vec<Replayed<'a>>,
}

/// The job under some settings.
#[derive(Serialize)]
struct Replayed<'a> {
    name: &'a str,
    conf: String,
    /// Whether the device has virtual memory.
    virtual_memory: bool,
    /// Peaks.
    requested: u64,
    reserved: u64,
    in_pieces: u64,
    device_calls: u64,
    /// The smallest device on which the job completes, or `None` if there is none.
    smallest: Option<u64>,
}

impl<'a> From<&'a Row> for Replayed<'a> {
    fn from(row: &'a Row) -> Self {
        let Row { setting, requested, reserved, in_pieces, calls, time: _, completes: _, smallest } = row;
        Self {
            name: &setting.name,
            conf: setting.conf(),
            virtual_memory: setting.maps,
            requested: *requested,
            reserved: *reserved,
            in_pieces: *in_pieces,
            device_calls: *calls,
            smallest: *smallest,
        }
    }
}

impl Advice<'_> {
    /// Writes the advice as one line of JSON.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        let advised = Advised {
            job: &self.comparison.name,
            text: self.to_string(),
            now: self.now.setting.conf(),
            set: self.best.map(|best| best.setting.conf()),
            settings: self.comparison.rows.iter().map(Replayed::from).collect(),
        };
        serde_json::to_writer(&mut out, &advised)?;
        writeln!(out)
    }
}
