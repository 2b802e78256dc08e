//! Steps with pinned memory of the host.

use super::machine::Machine;
use super::program::chosen;

impl Machine {
    pub(super) fn copy_to_pinned(&mut self, nth: usize, pinned: usize, stream: usize) {
        let (Some(nth), Some(place)) = (self.buffer(nth), chosen(pinned, self.pinned.len())) else { return };
        let stream = self.streams[stream];
        let len = self.buffers[nth].parts()[0].1.min(self.pinned[place].0.len());
        if self.ordered(&self.buffers[nth], stream, false) {
            let owned = &self.buffers[nth];
            let copied = owned.buffer.copy_to_pinned(0..len, &mut self.pinned[place].0, 0, stream);
            let value = owned.first();
            self.pinned[place].1 = self.done(copied).and(value);
        }
    }

    pub(super) fn copy_from_pinned(&mut self, nth: usize, pinned: usize, stream: usize, value: u8) {
        let (Some(nth), Some(place)) = (self.buffer(nth), chosen(pinned, self.pinned.len())) else { return };
        let stream = self.streams[stream];
        let filled = self.pinned[place].0.bytes_mut().map(|bytes| bytes.fill(value));
        self.pinned[place].1 = None;
        if self.done(filled).is_none() || !self.ordered(&self.buffers[nth], stream, true) {
            return;
        }
        self.pinned[place].1 = Some(value);
        let (_, part) = self.buffers[nth].parts()[0];
        let len = part.min(self.pinned[place].0.len());
        let copied = self.buffers[nth].buffer.copy_from_pinned(0, &self.pinned[place].0, 0..len, stream);
        let value = self.done(copied).map(|()| value).filter(|_| len == part);
        self.buffers[nth].set_part(0, value);
    }

    pub(super) fn check_pinned(&self, nth: usize) {
        let (pinned, value) = &self.pinned[nth];
        if let (Some(bytes), Some(value)) = (self.done(pinned.bytes()), value) {
            assert_eq!(bytes[0], *value, "the first byte of pinned memory");
        }
    }
}
