//! What a stream has captured so far, and marks in it.
//!
//! A mark is an empty node that depends on the stream's last nodes at that moment. Nothing depends on it: the stream
//! goes on as if there were no mark, so a mark changes no order, and it is never among the nodes that lead to later
//! work. It counts as preceding that work when all that it depends on does. PyTorch decides by the same nodes: its
//! `record_free_markers` remembers the last nodes themselves, and `free_safe_blocks_in_capture` looks for them among
//! those that the stream's last nodes depend on. The end of a capture does not require that added nodes are joined.
#![allow(unsafe_code)] // calls the driver

use std::collections::{HashMap, HashSet};
use std::ffi::{c_uchar, c_uint};
use std::sync::Mutex;
use std::{iter, ptr};

use accelerator_core::backend_kit::lock;
use accelerator_core::{DriverErrorKind, DriverResult};
use cudarc::driver::sys::{CUgraph, CUgraphNode, CUresult as Code, CUstreamCaptureStatus as Status};

use crate::answer;
use crate::calls::call;
use crate::context::Context;
use crate::stream::CudaStream;

/// CUDA's `CUgraphEdgeData`, which older bindings lack.
pub(crate) type EdgeData = [c_uchar; 8];

/// An edge that is not all zeros, such as one of programmatic dependent launch, lets work begin before what it depends
/// on is done.
const FULL: EdgeData = [0; 8];

/// CUDA does not allow two threads to use one graph at the same time. Only captures wait for this.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Returns the number of the capture that a stream takes part in. A broken capture has none any more.
pub(crate) fn capture_of(context: &Context, stream: &CudaStream) -> DriverResult<Option<u64>> {
    let (mut status, mut number, none) = (0, 0, ptr::null_mut());
    // SAFETY: The stream is alive, and the call writes two numbers.
    let ask = || unsafe {
        call!(cuStreamGetCaptureInfo_v2(
            stream.native(),
            &mut status,
            &mut number,
            none,
            ptr::null_mut(),
            ptr::null_mut()
        ))
    };
    Ok(is_active(context.run(ask), &status)?.then_some(number))
}

/// Adds a mark after what the stream has captured so far. Returns its handle as a number.
pub(crate) fn mark(context: &Context, stream: &CudaStream) -> DriverResult<Option<u64>> {
    let _one = lock(&ONE_AT_A_TIME);
    let Some(Capture { graph, last }) = capture(context, stream)? else { return Ok(None) };
    if last.is_empty() {
        return Ok(None);
    }
    let mut mark = ptr::null_mut();
    // SAFETY: The graph is that of a capture in progress, and these are nodes of it. The call writes a handle.
    context.run(|| unsafe { call!(cuGraphAddEmptyNode(&mut mark, graph, last.as_ptr(), last.len())) })?;
    Ok(Some(number(mark)))
}

/// Returns, for each mark, whether it precedes everything that the stream captures from now on.
pub(crate) fn precede(context: &Context, marks: &[u64], stream: &CudaStream) -> DriverResult<Vec<bool>> {
    let _one = lock(&ONE_AT_A_TIME);
    match capture(context, stream)? {
        None => Ok(vec![false; marks.len()]),
        Some(Capture { graph, last }) => Ok(preceding(marks, &edges(context, graph)?, last)),
    }
}

fn preceding(marks: &[u64], edges: &[(CUgraphNode, CUgraphNode)], last: Vec<CUgraphNode>) -> Vec<bool> {
    let mut before: HashMap<u64, Vec<u64>> = HashMap::new();
    for (from, to) in edges {
        before.entry(number(*to)).or_default().push(number(*from));
    }
    let mut done = HashSet::new();
    let mut next: Vec<u64> = last.into_iter().map(number).collect();
    while let Some(node) = next.pop() {
        if done.insert(node) {
            next.extend(before.get(&node).into_iter().flatten());
        }
    }
    let precedes = |mark| before.get(mark).is_some_and(|nodes| nodes.iter().all(|node| done.contains(node)));
    marks.iter().map(precedes).collect()
}

/// What a stream has captured so far.
struct Capture {
    graph: CUgraph,
    /// The nodes that whatever the stream captures next comes after.
    last: Vec<CUgraphNode>,
}

fn capture(context: &Context, stream: &CudaStream) -> DriverResult<Option<Capture>> {
    let stream = stream.native();
    let (mut status, mut graph, none) = (0, ptr::null_mut(), ptr::null_mut());
    let (mut last, mut data, mut count) = (ptr::null(), ptr::null(), 0);
    let asked = context.run(|| {
        // SAFETY: The stream is alive, and the call writes numbers, a handle and addresses.
        let newer = unsafe {
            call!(cuStreamGetCaptureInfo_v3(stream, &mut status, none, &mut graph, &mut last, &mut data, &mut count))
        };
        // SAFETY: As above.
        or_older(newer, || unsafe {
            call!(cuStreamGetCaptureInfo_v2(stream, &mut status, none, &mut graph, &mut last, &mut count))
        })
    });
    if !is_active(asked, &status)? {
        return Ok(None);
    }
    // SAFETY: The driver keeps that many elements there until the next call about the stream.
    let last = unsafe { elements(last, count) };
    // SAFETY: As above.
    let data = unsafe { elements(data, count) };
    Ok(Some(Capture { graph, last: full(last.iter().copied(), data) }))
}

/// Whether the answer is that the stream takes part in an intact capture.
fn is_active(asked: DriverResult<()>, status: &c_uint) -> DriverResult<bool> {
    match asked {
        Ok(()) => Ok(*status == Status::CU_STREAM_CAPTURE_STATUS_ACTIVE as c_uint),
        // The default stream takes part in none, but would wait for another stream that does.
        Err(error) if answer::is(&error, Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the full edges of a graph.
fn edges(context: &Context, graph: CUgraph) -> DriverResult<Vec<(CUgraphNode, CUgraphNode)>> {
    let mut room = 256;
    loop {
        let mut from = vec![ptr::null_mut(); room];
        let (mut to, mut data, mut count) = (from.clone(), vec![FULL; room], room);
        let [from_at, to_at] = [&mut from, &mut to].map(Vec::as_mut_ptr);
        context.run(|| {
            // SAFETY: The graph is that of a capture in progress, and the arrays have room for that many elements.
            let newer = unsafe { call!(cuGraphGetEdges_v2(graph, from_at, to_at, data.as_mut_ptr(), &mut count)) };
            // SAFETY: As above.
            or_older(newer, || unsafe { call!(cuGraphGetEdges(graph, from_at, to_at, &mut count)) })
        })?;
        if count < room {
            return Ok(full(from.into_iter().zip(to).take(count), &data));
        }
        room *= 4; // there may be more
    }
}

/// Returns those whose edges are full. Edges without data are.
fn full<T>(all: impl Iterator<Item = T>, data: &[EdgeData]) -> Vec<T> {
    let data = data.iter().chain(iter::repeat(&FULL));
    all.zip(data).filter(|(_, data)| **data == FULL).map(|(one, _)| one).collect()
}

/// Makes the older version of a call if the driver lacks the newer one, which came with CUDA 12.3.
fn or_older(newer: DriverResult<()>, older: impl FnOnce() -> DriverResult<()>) -> DriverResult<()> {
    match newer {
        Err(error) if error.kind == DriverErrorKind::Unsupported => older(),
        newer => newer,
    }
}

fn number(node: CUgraphNode) -> u64 {
    node.addr() as u64
}

/// Returns the elements of an array of the driver, none if it is null.
///
/// # Safety
/// * The array is null, or has that many elements as long as the slice is used.
unsafe fn elements<'a, T>(array: *const T, count: usize) -> &'a [T] {
    match array.is_null() {
        true => &[],
        // SAFETY: The caller promises the elements.
        false => unsafe { std::slice::from_raw_parts(array, count) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_precedes_if_all_that_it_depends_on_does() {
        let node = ptr::without_provenance_mut;
        let edges: Vec<_> = [(1, 2), (2, 3), (1, 4), (3, 10), (4, 11), (3, 12), (4, 12)]
            .map(|(from, to)| (node(from), node(to)))
            .into();
        let of = |last: &[usize]| preceding(&[10, 11, 12, 13], &edges, last.iter().map(|last| node(*last)).collect());
        assert_eq!(of(&[3]), [true, false, false, false]);
        assert_eq!(of(&[4]), [false, true, false, false]);
        assert_eq!(of(&[3, 4]), [true, true, true, false], "13 is no mark");
        assert_eq!(of(&[2]), [false; 4]);
        assert_eq!(of(&[]), [false; 4]);
    }

    #[test]
    fn only_full_edges_order_work() {
        let programmatic = [1, 0, 1, 0, 0, 0, 0, 0];
        assert_eq!(full(1..=4, &[FULL, programmatic, FULL]), [1, 3, 4]);
    }
}
