//! Stream capture.

use sim_engine::out::{Out, put};

use crate::capture::ACTIVE;
use crate::code::{Code, Outcome};
use crate::gate::{exports, required};
use crate::graph::EdgeData;
use crate::state::{Handle, Session};
use crate::thread;

exports! {
    /// Whether a stream is being captured.
    fn cuStreamIsCapturing(stream: Handle, status: Out<'_, u32>) [Context] => safe status;
    /// Ends the capture, and returns its graph.
    fn cuStreamEndCapture(stream: Handle, graph: Out<'_, Handle>) [Context] => safe end;
    /// Sets what the calling thread may do during captures, and returns the previous mode.
    fn cuThreadExchangeStreamCaptureMode(mode: Option<&mut u32>) [Init] => safe exchange_mode;
}

exports! { newer:
    /// Starts capturing a stream: its work becomes part of a graph instead of happening.
    fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) [Context] => safe begin;
    /// Returns the status, and for an intact capture its number, its graph, and the nodes that the stream's next one
    /// depends on. These stay readable until the next call about the stream.
    fn cuStreamGetCaptureInfo_v2(
        stream: Handle, status: Out<'_, u32>, id: Out<'_, u64>, graph: Out<'_, Handle>,
        dependencies: Out<'_, *const Handle>, count: Out<'_, usize>,
    ) [Context] => safe info;
    /// Like `cuStreamGetCaptureInfo_v2`, with the data of the edges from these nodes.
    fn cuStreamGetCaptureInfo_v3(
        stream: Handle, status: Out<'_, u32>, id: Out<'_, u64>, graph: Out<'_, Handle>,
        dependencies: Out<'_, *const Handle>, edges: Out<'_, *const EdgeData>, count: Out<'_, usize>,
    ) [Context] => safe info_with_edges;
}

fn begin(driver: &mut Session, stream: Handle, mode: u32) -> Outcome {
    let stream = driver.stream(stream)?;
    driver.begin_capture(stream, mode)
}

fn end(driver: &mut Session, stream: Handle, graph: Out<'_, Handle>) -> Outcome {
    let graph = required(graph)?;
    let stream = driver.stream(stream)?;
    let ended = driver.end_capture(stream);
    graph.write(ended.unwrap_or(0));
    ended.map(drop)
}

fn status(driver: &mut Session, stream: Handle, status: Out<'_, u32>) -> Outcome {
    let status = required(status)?;
    let stream = driver.stream(stream)?;
    status.write(driver.capture_status(stream)?.0);
    Ok(())
}

fn info(
    driver: &mut Session,
    stream: Handle,
    status: Out<'_, u32>,
    id: Out<'_, u64>,
    graph: Out<'_, Handle>,
    dependencies: Out<'_, *const Handle>,
    count: Out<'_, usize>,
) -> Outcome {
    info_with_edges(driver, stream, status, id, graph, dependencies, None, count)
}

#[allow(clippy::too_many_arguments, reason = "so the driver API has it")]
fn info_with_edges(
    driver: &mut Session,
    stream: Handle,
    status: Out<'_, u32>,
    id: Out<'_, u64>,
    graph: Out<'_, Handle>,
    dependencies: Out<'_, *const Handle>,
    edges: Out<'_, *const EdgeData>,
    count: Out<'_, usize>,
) -> Outcome {
    let status = required(status)?;
    let stream = driver.stream(stream)?;
    let (now, capture) = driver.capture_status(stream)?;
    status.write(now);
    if now == ACTIVE {
        let (built, reported) = driver.report(stream)?;
        put(id, capture);
        put(graph, built);
        put(dependencies, reported.nodes.as_ptr());
        put(edges, reported.edges.as_ptr());
        put(count, reported.nodes.len());
    }
    Ok(())
}

fn exchange_mode(_: &mut Session, mode: Option<&mut u32>) -> Outcome {
    let mode = required(mode)?;
    if *mode > thread::RELAXED {
        return Err(Code::INVALID_VALUE);
    }
    let before = thread::capture_mode();
    thread::set_capture_mode(*mode);
    *mode = before;
    Ok(())
}
