//! Group M: the backend itself, with nothing of ours between.
//!
//! The other groups run on `Faulty`, which holds work back before it reaches the driver, so that no case has to wait.
//! They therefore say little about the driver's own streams and events, on which memory safety rests. These cases let
//! the driver do work that takes long enough to be looked at, and look.
//!
//! From the bottom: `bytes` compares; `rig` has the memory and the streams, and `work` the long work; each other file
//! has cases about one part of the contract.

pub(crate) mod bytes;
mod completion;
mod conflicts;
mod device;
mod graphs;
mod live;
mod memory;
mod peers;
mod rig;
mod streams;
mod threads;
mod time;
mod transfers;
mod virtual_memory;
mod waits;
mod work;

use std::sync::OnceLock;

use accelerator_core::Backend;

use self::rig::Rig;
pub(crate) use self::work::Scale;
use crate::erased::AnyBackend;
use crate::outcome::{Failure, Outcome, caught};
use crate::progress;
use crate::sim::Sim;

/// A case on the backend itself.
struct RawCase<B: Backend> {
    number: u32,
    name: &'static str,
    run: fn(&Rig<B>) -> Outcome,
}

/// The cases, by number.
fn table<B: Backend>() -> [RawCase<B>; 41] {
    let case = |number, name, run| RawCase { number, name, run };
    [
        case(115, "is_complete_means_done", completion::is_complete_means_done),
        case(116, "is_idle_means_done", completion::is_idle_means_done),
        case(117, "synchronize_means_done", completion::synchronize_means_done),
        case(118, "wait_host_means_done", completion::wait_host_means_done),
        case(119, "a_stream_waits_for_an_event", waits::a_stream_waits_for_an_event),
        case(120, "a_wait_is_work", waits::a_wait_is_work),
        case(121, "waits_and_records_do_not_block", waits::waits_and_records_do_not_block),
        case(122, "recorded_again", completion::recorded_again),
        case(123, "a_wait_keeps_its_record", waits::a_wait_keeps_its_record),
        case(124, "unrecorded_is_complete", completion::unrecorded_is_complete),
        case(125, "events_dropped_while_pending", completion::events_dropped_while_pending),
        case(126, "fills_of_every_length_and_offset", transfers::fills_of_every_length_and_offset),
        case(127, "copies_of_every_length_and_offset", transfers::copies_of_every_length_and_offset),
        case(128, "large_copies", transfers::large_copies),
        case(129, "copies_read_in_stream_order", transfers::copies_read_in_stream_order),
        case(130, "pageable_copies_read_in_stream_order", transfers::pageable_copies_read_in_stream_order),
        case(131, "copies_do_not_block", transfers::copies_do_not_block),
        case(132, "elapsed_time_is_the_hosts", time::elapsed_time_is_the_hosts),
        case(133, "elapsed_time_has_a_sign", time::elapsed_time_has_a_sign),
        case(134, "allocations_are_apart_and_aligned", memory::allocations_are_apart_and_aligned),
        case(135, "memory_runs_out", memory::memory_runs_out),
        case(136, "too_large_is_told", memory::too_large_is_told),
        case(137, "memory_info_follows", memory::memory_info_follows),
        case(138, "dealloc_gives_back", memory::dealloc_gives_back),
        case(139, "dealloc_waits_for_work", memory::dealloc_waits_for_work),
        case(140, "host_memory", memory::host_memory),
        case(141, "many_streams", streams::many_streams),
        case(142, "every_method_from_eight_threads", threads::every_method_from_eight_threads),
        case(143, "backend_dropped_under_work", device::backend_dropped_under_work),
        case(144, "probe_and_open", device::probe_and_open),
        case(145, "properties_are_constant", device::properties_are_constant),
        case(146, "mapped_memory_is_memory", virtual_memory::mapped_memory_is_memory),
        case(147, "event_ids_differ", device::event_ids_differ),
        case(148, "conflicting_work", conflicts::conflicting_work),
        case(149, "streams_dropped_under_work", completion::streams_dropped_under_work),
        case(150, "captured_work_runs_at_each_launch", graphs::captured_work_runs_at_each_launch),
        case(151, "streams_join_a_capture", graphs::streams_join_a_capture),
        case(152, "broken_captures_end", graphs::broken_captures_end),
        case(153, "captures_give_no_answers", graphs::captures_give_no_answers),
        case(154, "launches_run_one_after_another", graphs::launches_run_one_after_another),
        case(155, "marks_precede_what_follows", graphs::marks_precede_what_follows),
    ]
}

/// Returns the number and the name of each case.
pub(crate) fn names() -> impl Iterator<Item = (u32, &'static str)> {
    table::<Sim>().into_iter().map(|case| (case.number, case.name))
}

/// Runs the case with this number on the backend inside `any`. `scale` is kept for later cases.
pub(crate) fn run<B: Backend>(any: &AnyBackend, number: u32, scale: &OnceLock<Scale>) -> Outcome {
    let backend = any.of::<B>()?;
    let Some(case) = table::<B>().into_iter().find(|case| case.number == number) else {
        return Err(format!("there is no case {number}").into());
    };
    let rig = Rig::new(backend, scale);
    let outcome = caught(|| (case.run)(&rig));
    if matches!(outcome, Err(Failure::Stuck(_))) {
        std::mem::forget(rig); // nothing can be waited for
        return outcome;
    }
    // Once a case has failed, the driver's word is not enough that work is done.
    let finished = rig.finish(outcome.is_err() || progress::broken().is_some());
    outcome.and(finished)
}
