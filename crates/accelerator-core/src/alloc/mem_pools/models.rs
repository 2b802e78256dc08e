use super::*;
use crate::alloc::settings::AllocatorConfig;
use crate::event::EventPool;
use crate::stream::modelled::Idle;
use crate::sync::primitives::{explore, thread};

const POOL: MemPoolId = MemPoolId::new(0, 1);
const STREAM: StreamId = StreamId(0);

struct Shared {
    pools: MemPools,
    arenas: Arenas,
    events: EventPool<Idle>,
}

impl Shared {
    fn new() -> Arc<Self> {
        let arenas = Arenas::new(AllocatorConfig::default(), 1 << 30, false, |_| unreachable!("nothing is shared"));
        Arc::new(Self { pools: MemPools::default(), arenas, events: EventPool::new(Idle::streams()) })
    }

    fn begin(&self) -> RouteId {
        self.pools.retain(POOL, None);
        self.pools.begin(POOL, Applies::Stream(STREAM), &self.arenas)
    }

    fn end(&self, route: RouteId) {
        assert_eq!(self.pools.end(route, &self.arenas), Some(POOL));
        self.pools.release(POOL);
        self.pools.forget_if_empty(POOL, &self.arenas);
    }

    /// Makes a request. Returns whether it went to the pool.
    fn request(&self) -> bool {
        let routed = self.pools.route(STREAM, &self.events, &self.arenas);
        assert!(!matches!(routed, Err(Unroutable::Paused(_))), "no pool is paused");
        let Some(lease) = routed.ok().flatten() else { return false };
        // The pool stays for as long as the request lasts.
        assert!(self.pools.arenas(POOL).contains(&lease.arena));
        assert_eq!(self.arenas.of(lease.arena).lock().mem_pool(), POOL);
        true
    }

    fn is_routed(&self) -> bool {
        self.arenas.of(ArenaId::of_stream(STREAM)).lock().is_routed()
    }
}

#[test]
fn a_request_that_takes_a_route_keeps_its_pool() {
    explore(3, || {
        let shared = Shared::new();
        let route = shared.begin();
        let requesting = Arc::clone(&shared);
        let requesting = thread::spawn(move || requesting.request());
        shared.end(route);
        assert!(!shared.request(), "the route has ended");
        requesting.join().unwrap();
        shared.pools.forget_if_empty(POOL, &shared.arenas);
        assert!(!shared.pools.exists(POOL));
    });
}

#[test]
fn requests_take_the_slow_path_as_long_as_there_are_routes() {
    explore(3, || {
        let shared = Shared::new();
        assert!(!shared.is_routed());
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            let route = other.begin();
            assert!(other.is_routed() && other.request());
            other.end(route);
        });
        let route = shared.begin();
        assert!(shared.is_routed() && shared.request());
        other.join().unwrap();
        assert!(shared.is_routed() && shared.request());
        shared.end(route);
        assert!(!shared.is_routed() && !shared.pools.exists(POOL));
    });
}

#[test]
fn no_request_is_inside_a_pool_that_was_closed() {
    use std::sync::atomic::{AtomicU32, Ordering};

    explore(2, || {
        let shared = Shared::new();
        shared.pools.retain(POOL, None);
        assert!(shared.pools.set_pausable(POOL));
        shared.pools.begin(POOL, Applies::Stream(STREAM), &shared.arenas);
        let inside = Arc::new(AtomicU32::new(0)); // no part of the model
        let requesting = [(); 2].map(|()| {
            let (shared, inside) = (Arc::clone(&shared), Arc::clone(&inside));
            thread::spawn(move || {
                let routed = shared.pools.route(STREAM, &shared.events, &shared.arenas);
                if let Ok(Some(lease)) = routed {
                    inside.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(shared.arenas.of(lease.arena).lock().mem_pool(), POOL);
                    inside.fetch_sub(1, Ordering::Relaxed);
                }
            })
        });
        shared.pools.close(POOL, &shared.arenas).unwrap();
        assert_eq!(inside.load(Ordering::Relaxed), 0);
        assert!(matches!(shared.pools.route(STREAM, &shared.events, &shared.arenas), Err(Unroutable::Paused(POOL))));
        assert_eq!(inside.load(Ordering::Relaxed), 0);
        shared.pools.open(POOL, &shared.arenas);
        assert!(shared.request());
        requesting.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
