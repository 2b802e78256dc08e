//! A snapshot of any size, generated while it is read, with the operations that Python's pickler uses for PyTorch's
//! snapshots.

use std::io::Read;

/// Segments and entries in the proportions of a long run. Allocations come from a few hundred places in a program. Each
/// block has its own list of frames, to which its frees refer.
pub(crate) struct Endless {
    /// The approximate total size, and the bytes generated so far.
    bytes: u64,
    pub(crate) written: u64,
    /// The contents so far.
    pub(crate) segments: u64,
    pub(crate) entries: u64,
    pub(crate) allocated: u64,
    pub(crate) frames: u64,
    /// The memo indices of strings and frames, and the size of the memo.
    texts: std::collections::HashMap<&'static str, u32>,
    known: Vec<u32>,
    memorised: u32,
    ready: Vec<u8>,
    taken: usize,
    stage: Stage,
}

enum Stage {
    Segments,
    Entries,
    Over,
}

const BATCH: u64 = 1000;
const FRAMES: u64 = 12;

impl Endless {
    pub(crate) fn new(bytes: u64) -> Self {
        let mut new = Self {
            bytes,
            written: 0,
            segments: 0,
            entries: 0,
            allocated: 0,
            frames: 0,
            texts: Default::default(),
            known: Vec::new(),
            memorised: 0,
            ready: vec![0x80, 4],
            taken: 0,
            stage: Stage::Segments,
        };
        new.begin(b'}');
        new.ready.push(b'(');
        new.text("segments");
        new.begin(b']');
        new
    }

    /// Generates the next batch of elements.
    fn more(&mut self) {
        self.written += self.taken as u64;
        self.ready.clear();
        self.taken = 0;
        match self.stage {
            Stage::Segments => {
                self.ready.push(b'(');
                (0..BATCH / 10).for_each(|_| self.segment());
                self.ready.push(b'e');
                if self.written > self.bytes / 10 {
                    self.text("device_traces");
                    self.begin(b']');
                    self.begin(b']');
                    self.stage = Stage::Entries;
                }
            }
            Stage::Entries => {
                self.ready.push(b'(');
                (0..BATCH).for_each(|_| self.block());
                self.ready.push(b'e');
                if self.written > self.bytes {
                    self.ready.extend(b"au."); // the only history, and the end of the dictionary
                    self.stage = Stage::Over;
                }
            }
            Stage::Over => {}
        }
    }

    fn segment(&mut self) {
        let address = 0x7f00_0000_0000 + (self.segments << 21);
        self.begin(b'}');
        self.ready.push(b'(');
        self.field("device", 0);
        self.field("address", address);
        self.field("total_size", 2 << 20);
        self.text("frames");
        self.stack();
        self.text("blocks");
        self.begin(b']');
        self.ready.push(b'(');
        for index in 0..8 {
            self.begin(b'}');
            self.ready.push(b'(');
            self.field("address", address + (index << 18));
            self.field("size", 1 << 18);
            self.field("requested_size", (1 << 18) - 3);
            self.text("state");
            self.text("active_allocated");
            self.text("frames");
            self.stack();
            self.ready.push(b'u');
        }
        self.ready.extend(b"eu");
        self.segments += 1;
    }

    /// Generates an allocation and its two free entries.
    fn block(&mut self) {
        let size = 512 + self.entries % 70_000;
        let address = 0x7f00_0000_0000 + (self.entries << 9);
        let mut frames = 0;
        for action in ["alloc", "free_requested", "free_completed"] {
            self.begin(b'}');
            self.ready.push(b'(');
            self.text("action");
            self.text(action);
            self.field("addr", address);
            self.field("size", size);
            self.field("stream", 0);
            self.field("time_us", 1_795_224_018_650_976 + self.entries);
            self.text("compile_context");
            self.text("N/A");
            self.text("user_metadata");
            self.text("");
            self.text("pool_id");
            self.ready.extend(b"K\0K\0\x86");
            self.memorise();
            self.text("frames");
            if action == "alloc" {
                frames = self.stack();
            } else {
                self.recall(frames);
            }
            self.frames += FRAMES;
            self.entries += 1;
            self.ready.push(b'u');
        }
        self.allocated += size;
    }

    /// Generates a list of frames and returns its memo index.
    fn stack(&mut self) -> u32 {
        self.begin(b']');
        let place = self.memorised - 1;
        self.ready.push(b'(');
        for level in 0..FRAMES {
            let line = (self.entries / 3 * 7 + level * level) % 300;
            match self.known.get(line as usize) {
                Some(&known) => self.recall(known),
                None => {
                    self.begin(b'}');
                    self.known.push(self.memorised - 1);
                    self.ready.push(b'(');
                    self.text("name");
                    self.text("forward");
                    self.text("filename");
                    self.text("torch/nn/modules/module.py");
                    self.field("line", line);
                    self.ready.push(b'u');
                }
            }
        }
        self.ready.push(b'e');
        place
    }

    fn field(&mut self, key: &'static str, value: u64) {
        self.text(key);
        self.ready.extend([0x8a, 8]);
        self.ready.extend(value.to_le_bytes());
    }

    fn text(&mut self, text: &'static str) {
        if let Some(&known) = self.texts.get(text) {
            return self.recall(known);
        }
        self.ready.extend([0x8c, text.len() as u8]);
        self.ready.extend(text.bytes());
        self.texts.insert(text, self.memorised);
        self.memorise();
    }

    /// Starts a list or dictionary, which Python always memorises.
    fn begin(&mut self, opcode: u8) {
        self.ready.push(opcode);
        self.memorise();
    }

    fn memorise(&mut self) {
        self.ready.push(0x94);
        self.memorised += 1;
    }

    fn recall(&mut self, place: u32) {
        match u8::try_from(place) {
            Ok(byte) => self.ready.extend([b'h', byte]),
            Err(_) => {
                self.ready.push(b'j');
                self.ready.extend(place.to_le_bytes());
            }
        }
    }
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.taken == self.ready.len() {
            self.more();
        }
        let count = buffer.len().min(self.ready.len() - self.taken);
        buffer[..count].copy_from_slice(&self.ready[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}
