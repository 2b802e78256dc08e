use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::{BOOLEAN, IgnoredKey};
use crate::alloc::AllocatorConfig;
use crate::types::Error;

/// PyTorch 2.15's responses to `c10::CachingAllocator::setAllocatorSettings`, except for allocators other than
/// `native`: PyTorch accepts those only in the environment, and `hipMallocAsync` only in a build for ROCm.
#[test]
fn values_are_accepted_as_in_pytorch_and_change_nothing() {
    for accepted in [
        "backend:native",
        "backend:cudaMallocAsync",
        "backend:hipMallocAsync",
        "release_lock_on_cudamalloc:True",
        "release_lock_on_hipmalloc:False",
        "pinned_use_cuda_host_register:True",
        "pinned_use_hip_host_register:False",
        "pinned_num_register_threads:1",
        "pinned_num_register_threads:128",
        "pinned_reserve_segment_size_mb:1",
        "pinned_free_catch_all:True",
        "expandable_segments_reserve:0.5",
        "expandable_segments_reserve:40G",
        "expandable_segments_reserve:nonsense",
        "expandable_segments_reserve_by_class:[a:0.5,b:40G]",
        "expandable_segments_reserve_by_class:[]",
    ] {
        let config = AllocatorConfig::default().updated(accepted).unwrap();
        assert_eq!(config, AllocatorConfig::default(), "{accepted}");
        assert_eq!(config.to_string(), "", "{accepted}");
        let others = AllocatorConfig::default().updated(&format!("policy:compact,{accepted},caching:False"));
        assert_eq!(others.unwrap().to_string(), "policy:compact,caching:False");
    }
}

#[test]
fn values_are_refused_as_in_pytorch_with_what_was_expected() {
    let (booleans, powers) = ("`True` or `False`", "a power of two up to 128");
    for (settings, expected) in [
        ("backend:Native", "`native` or `cudaMallocAsync`"),
        ("backend:[a:1]", "`native` or `cudaMallocAsync`"),
        ("release_lock_on_cudamalloc:true", booleans),
        ("release_lock_on_hipmalloc:1", booleans),
        ("pinned_use_cuda_host_register:yes", booleans),
        ("pinned_use_hip_host_register:0", booleans),
        ("pinned_free_catch_all:on", booleans),
        ("pinned_num_register_threads:0", powers),
        ("pinned_num_register_threads:3", powers),
        ("pinned_num_register_threads:256", powers),
        ("pinned_num_register_threads:x", "a whole number"),
        ("pinned_reserve_segment_size_mb:0", "more than 0"),
        ("pinned_reserve_segment_size_mb:x", "a whole number"),
        ("expandable_segments_reserve:[a:1]", "a fraction or a size"),
        ("expandable_segments_reserve_by_class:0.5", "a table"),
        ("backend", "a value"),
        ("backend:", "a value"),
        ("expandable_segments_handle_type:posix_fd", "expected one of max_split_size_mb, "),
    ] {
        let error = AllocatorConfig::default().updated(settings).unwrap_err();
        let Error::InvalidSetting { variable: None, settings: given, reason } = &error else {
            panic!("{error}");
        };
        assert_eq!(given, settings);
        let key = settings.split(':').next().unwrap();
        assert!(reason.contains(&format!("`{key}`")) && reason.contains(expected), "{settings}: {reason}");
    }
}

/// Collects the messages of warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        assert_eq!(*event.metadata().level(), Level::WARN);
        event.record(&mut self.clone());
    }
}

impl Visit for Warnings {
    fn record_debug(&mut self, _: &Field, message: &dyn fmt::Debug) {
        self.0.lock().unwrap().push(format!("{message:?}"));
    }
}

#[test]
fn a_key_warns_once() {
    let warnings = Warnings::default();
    let subscriber = tracing_subscriber::registry().with(warnings.clone());
    tracing::subscriber::with_default(subscriber, || {
        let key = IgnoredKey::new("backend", BOOLEAN);
        key.warn_once();
        key.warn_once();
    });
    let expected = "the allocator setting `backend` has no effect: only PyTorch's CUDA allocator uses it";
    assert_eq!(*warnings.0.lock().unwrap(), [expected]);
}
