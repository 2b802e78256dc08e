//! What is left once everything was given back: nothing.

use accelerator_conformance::Controls;

use super::machine::{Machine, Raw};

impl Machine {
    pub(super) fn finish(mut self) {
        let (driver, allocator) = (self.driver(), self.allocator());
        driver.clear_failures();
        driver.set_capacity(u64::MAX);
        self.end_capture(driver.injected());
        self.graphs.clear();
        self.routes.drain(..).for_each(|route| allocator.end_allocate_to_pool(route));
        self.live.drain(..).for_each(|allocation| allocator.free(allocation).unwrap());
        self.raw.drain(..).for_each(|Raw { ptr, .. }| allocator.raw_free(ptr).unwrap());
        for (pool, uses) in &self.uses {
            assert_eq!(allocator.pool_uses(*pool), *uses, "{pool}");
            (0..*uses).for_each(|_| allocator.release_pool(*pool).unwrap());
        }
        driver.release_all();
        self.accelerator.synchronize().unwrap();
        allocator.empty_cache().unwrap();
        allocator.check();

        let statistics = allocator.statistics();
        for (name, stat) in statistics.pool_stats() {
            assert_eq!((stat.all.current, stat.small_pool.current, stat.large_pool.current), (0, 0, 0), "{name}");
        }
        // What counts as oversize depends on the settings at that moment, as in PyTorch.
        let oversize = (statistics.oversize_allocations.current, statistics.oversize_segments.current);
        assert!(self.is_configured || oversize == (0, 0), "{oversize:?}");
        assert_eq!((driver.used(), driver.live_allocations()), (0, 0), "left");
        // As in PyTorch, addresses stay reserved if no page could be mapped there.
        assert!(self.has_failed.get() || driver.live_reservations() == 0, "{} left", driver.live_reservations());
        assert_eq!((driver.inner().used(), driver.misuses()), (0, 0));
        assert!(allocator.pools().is_empty(), "{:?}", allocator.pools());
        assert!(allocator.snapshot().segments.is_empty());
    }
}
