//! Allocations, frees and uses.

use std::num::NonZeroU64;

use accelerator_conformance::Controls;
use accelerator_core::{DevicePtr, Error};

use super::bytes::Bytes;
use super::machine::{Machine, Raw, STREAMS};

impl Machine {
    pub(super) fn allocate(&mut self, bytes: &mut Bytes) {
        let (stream, size) = (self.streams[bytes.below(STREAMS)], bytes.size());
        let (requested, injected) = (NonZeroU64::new(size).unwrap(), self.driver().injected());
        match self.allocator().allocate(requested, stream) {
            Ok(allocation) => {
                assert_eq!((allocation.requested(), allocation.stream()), (requested, stream));
                assert!(allocation.size() >= size && size < 1 << 60);
                self.live.push(allocation);
            }
            Err(error) => self.allow_no_memory(error, injected),
        }
    }

    pub(super) fn raw_alloc(&mut self, bytes: &mut Bytes) {
        let (stream, size) = (self.streams[bytes.below(STREAMS)], bytes.size());
        let injected = self.driver().injected();
        match self.allocator().raw_alloc(size, stream) {
            Ok(Some(ptr)) => self.raw.push(Raw { ptr, requested: size }),
            Ok(None) => panic!("no memory for {size} bytes"),
            Err(error) => self.allow_no_memory(error, injected),
        }
    }

    pub(super) fn allocate_at(&mut self, bytes: &mut Bytes) {
        let (stream, size) = (self.streams[bytes.below(STREAMS)], bytes.size());
        let Some(ptr) = self.freed.get(bytes.below(self.freed.len())) else { return };
        let ptr = ptr.offset(u64::from(bytes.byte() % 4) * 256);
        let (requested, injected) = (NonZeroU64::new(size).unwrap(), self.driver().injected());
        match self.allocator().allocate_at(ptr, requested, stream) {
            Ok(Some(allocation)) => {
                assert_eq!((allocation.ptr(), allocation.requested(), allocation.stream()), (ptr, requested, stream));
                self.live.push(allocation);
            }
            Ok(None) => {}
            Err(error) => self.allow_no_memory(error, injected),
        }
    }

    pub(super) fn free(&mut self, bytes: &mut Bytes) {
        if !self.live.is_empty() {
            let allocation = self.live.swap_remove(bytes.below(self.live.len()));
            self.freed.push(allocation.ptr());
            self.allocator().free(allocation).unwrap();
        }
    }

    pub(super) fn record_use(&mut self, bytes: &mut Bytes) {
        let stream = self.streams[bytes.below(STREAMS)];
        if let Some(allocation) = self.live.get(bytes.below(self.live.len())) {
            self.allocator().record_use(allocation, stream).unwrap();
        }
    }

    pub(super) fn raw_free(&mut self, bytes: &mut Bytes) {
        if !self.raw.is_empty() {
            let Raw { ptr, requested } = self.raw.swap_remove(bytes.below(self.raw.len()));
            assert!(self.allocator().raw_size(ptr).unwrap() >= requested);
            self.freed.push(ptr);
            self.allocator().raw_free(ptr).unwrap();
        }
    }

    /// Pointers that no allocation has are refused. The checks after the step show that nothing changes.
    pub(super) fn raw_misuse(&mut self, bytes: &mut Bytes) {
        let stream = self.streams[bytes.below(STREAMS)];
        if let Some(raw) = self.raw.get(bytes.below(self.raw.len())) {
            self.allocator().raw_record_use(raw.ptr, stream).unwrap();
            assert!(matches!(self.allocator().raw_free(raw.ptr.offset(256)), Err(Error::UnknownPointer { .. })));
        }
        if let Some(allocation) = self.live.get(bytes.below(self.live.len())) {
            let ptr = allocation.ptr();
            assert!(matches!(self.allocator().raw_free(ptr), Err(Error::UnknownPointer { .. })));
            assert!(matches!(self.allocator().raw_record_use(ptr, stream), Err(Error::UnknownPointer { .. })));
        }
    }

    pub(super) fn hold(&mut self, bytes: &mut Bytes) {
        let nth = bytes.below(STREAMS);
        if !self.captures(nth) {
            self.driver().hold(self.streams[nth].native());
        }
    }

    pub(super) fn release(&mut self, bytes: &mut Bytes) {
        let nth = bytes.below(STREAMS);
        if !self.captures(nth) {
            self.driver().release(self.streams[nth].native());
        }
    }

    pub(super) fn synchronize(&mut self, bytes: &mut Bytes) {
        let (nth, injected) = (bytes.below(STREAMS), self.driver().injected());
        if !self.captures(nth) {
            let done = self.streams[nth].synchronize();
            self.allow(done.err(), injected);
        }
    }
}
