//! Allocator settings, from the environment and at run time.

use std::fmt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use accelerator::host::Host;
use accelerator::memory::{self, memory_stats};
use accelerator::{Buffer, ContextsOf, Error, HistoryContext, MIB, Recording, device_count};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::process::processes;

/// Returns the large segment size that a device is opened with.
fn large_segment() -> accelerator::Result<u64> {
    Ok(accelerator::typed::<Host>(0)?.allocator().config().large_segment_size)
}

/// Collects the messages of events. While recording a message, it calls the library, as a subscriber may.
#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Messages {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        assert_eq!(device_count(), 3);
        memory_stats(None).unwrap();
        memory::set_allocator_settings("").unwrap();
        event.record(&mut self.clone());
    }
}

impl Visit for Messages {
    fn record_debug(&mut self, _: &Field, message: &dyn fmt::Debug) {
        self.0.lock().unwrap().push(format!("{message:?}"));
    }
}

/// Asks for the settings when it is dropped.
struct Asks;

impl Drop for Asks {
    fn drop(&mut self) {
        memory::get_allocator_settings().unwrap();
    }
}

fn asks() -> Option<HistoryContext> {
    Some(Arc::new(Asks))
}

fn has_no_effect(key: &str) -> String {
    format!("the allocator setting `{key}` has no effect: only PyTorch's CUDA allocator uses it")
}

processes! { on_host:
    fn settings_reach_open_and_later_devices(ACCELERATOR_ALLOC_CONF = "large_segment_size_mb:30") {
        let config = |index| accelerator::typed::<Host>(index).map(|device| device.allocator().config());
        let before = config(0)?;
        assert_eq!(before.large_segment_size, 30 * MIB, "set by the environment");
        for bad in ["garbage_collection_threshold:2", "no_such_key:1", "max_split_size_mb"] {
            let error = memory::set_allocator_settings(bad).unwrap_err();
            assert!(matches!(&error, Error::InvalidSetting { settings, .. } if settings == bad), "{error:?}");
        }
        assert_eq!(config(0)?, before);
        memory::set_allocator_settings("max_split_size_mb:64,per_process_memory_fraction:0.5")?;
        assert_eq!(config(0)?.max_split_size, 64 * MIB);
        assert_eq!(config(1)?, config(0)?, "a device opened afterwards");
        assert_eq!(config(1)?.large_segment_size, 30 * MIB);
        assert_eq!(memory::get_per_process_memory_fraction(0)?, 1.0);
        assert_eq!(memory::get_per_process_memory_fraction(1)?, 0.5);
    }

    fn our_variable_comes_first(
        ACCELERATOR_ALLOC_CONF = "large_segment_size_mb:31",
        PYTORCH_CUDA_ALLOC_CONF = "large_segment_size_mb:32",
        PYTORCH_HIP_ALLOC_CONF = "large_segment_size_mb:33",
        PYTORCH_ALLOC_CONF = "large_segment_size_mb:34"
    ) {
        assert_eq!(large_segment()?, 31 * MIB);
    }

    fn the_variable_for_cuda_comes_first_among_pytorch_s(
        PYTORCH_CUDA_ALLOC_CONF = "large_segment_size_mb:32",
        PYTORCH_HIP_ALLOC_CONF = "large_segment_size_mb:33",
        PYTORCH_ALLOC_CONF = "large_segment_size_mb:34"
    ) {
        assert_eq!(large_segment()?, 32 * MIB);
    }

    fn the_variable_for_hip_comes_next(
        PYTORCH_HIP_ALLOC_CONF = "large_segment_size_mb:33",
        PYTORCH_ALLOC_CONF = "large_segment_size_mb:34"
    ) {
        assert_eq!(large_segment()?, 33 * MIB);
    }

    fn the_variable_for_all_accelerators_comes_last(PYTORCH_ALLOC_CONF = "large_segment_size_mb:34") {
        assert_eq!(large_segment()?, 34 * MIB);
    }

    fn an_empty_variable_counts_as_in_pytorch(
        PYTORCH_CUDA_ALLOC_CONF = "",
        PYTORCH_ALLOC_CONF = "large_segment_size_mb:34"
    ) {
        assert_eq!(large_segment()?, 20 * MIB);
    }

    fn wrong_settings_in_the_environment_are_an_error_that_names_the_variable(
        PYTORCH_CUDA_ALLOC_CONF = "max_split_size_mb:nonsense"
    ) {
        let error = Buffer::allocate(1, None).unwrap_err();
        assert!(matches!(error, Error::InvalidSetting { .. }), "{error}");
        let expected = "allocator settings `max_split_size_mb:nonsense` in the environment variable \
                        PYTORCH_CUDA_ALLOC_CONF: `max_split_size_mb` must be a whole number, not `nonsense`";
        assert_eq!(error.to_string(), expected);
        assert_eq!(memory::set_allocator_settings("").unwrap_err().to_string(), expected);
        assert!(memory_stats(None)?.is_empty());
    }

    fn keys_without_effect_are_warned_of_once(
        PYTORCH_ALLOC_CONF = "backend:cudaMallocAsync,large_segment_size_mb:30"
    ) {
        let messages = Messages::default();
        let subscriber = tracing_subscriber::registry().with(messages.clone());
        tracing::subscriber::with_default(subscriber, || -> accelerator::Result<()> {
            for device in 0..2 {
                drop(Buffer::allocate(1, device)?);
            }
            memory::set_allocator_settings("pinned_free_catch_all:True,backend:native")?;
            memory::set_allocator_settings("release_lock_on_hipmalloc:yes").unwrap_err();
            Ok(())
        })?;
        let keys = ["backend", "pinned_free_catch_all"];
        assert_eq!(*messages.0.lock().unwrap(), keys.map(has_no_effect));
        assert_eq!(large_segment()?, 30 * MIB, "the other keys take effect");
    }

    fn settings_change_although_a_context_of_the_history_asks_for_them_when_it_is_dropped() {
        let recording = Recording { max_entries: 1, contexts: ContextsOf::All, capture: Some(asks) };
        memory::record_history(None, Some(recording))?;
        drop(Buffer::allocate(512, None)?);
        let (done, is_done) = channel();
        thread::spawn(move || done.send(memory::set_allocator_settings("max_split_size_mb:64")));
        assert!(is_done.recv_timeout(Duration::from_secs(20)).is_ok_and(|set| set.is_ok()), "it waits for itself");
        assert_eq!(accelerator::typed::<Host>(0)?.allocator().config().max_split_size, 64 * MIB);
    }
}
