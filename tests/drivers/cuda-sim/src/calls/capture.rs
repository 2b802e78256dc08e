//! Stream capture.

use sim_engine::out::{Out, put};

use crate::capture::NOT_CAPTURING;
use crate::code::{Code, Outcome};
use crate::gate::{exports, required};
use crate::state::{Handle, Session};
use crate::thread;

exports! {
    /// Starts capturing a stream: its work is recorded instead of executed.
    fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) [Context] => safe begin;
    /// Ends the capture. The graph that it returns cannot be launched.
    fn cuStreamEndCapture(stream: Handle, graph: Out<'_, Handle>) [Context] => safe end;
    /// Whether a stream is being captured.
    fn cuStreamIsCapturing(stream: Handle, status: Out<'_, u32>) [Context] => safe status;
    /// Returns the status and the capture's number. Graphs and dependencies are not reported.
    fn cuStreamGetCaptureInfo_v2(
        stream: Handle, status: Out<'_, u32>, id: Out<'_, u64>, graph: Out<'_, Handle>,
        dependencies: Out<'_, Handle>, count: Out<'_, usize>,
    ) [Context] => safe info;
    /// Like `cuStreamGetCaptureInfo_v2`.
    fn cuStreamGetCaptureInfo_v3(
        stream: Handle, status: Out<'_, u32>, id: Out<'_, u64>, graph: Out<'_, Handle>,
        dependencies: Out<'_, Handle>, edges: Out<'_, Handle>, count: Out<'_, usize>,
    ) [Context] => safe info_with_edges;
    /// Sets what the calling thread may do during captures, and returns the previous mode.
    fn cuThreadExchangeStreamCaptureMode(mode: Option<&mut u32>) [Init] => safe exchange_mode;
    /// Destroys a graph.
    fn cuGraphDestroy(graph: Handle) [Healthy] => safe destroy_graph;
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
    dependencies: Out<'_, Handle>,
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
    dependencies: Out<'_, Handle>,
    edges: Out<'_, Handle>,
    count: Out<'_, usize>,
) -> Outcome {
    let status = required(status)?;
    let stream = driver.stream(stream)?;
    let (now, capture) = driver.capture_status(stream)?;
    status.write(now);
    if now != NOT_CAPTURING {
        put(id, capture);
        put(graph, 0);
        put(dependencies, 0);
        put(edges, 0);
        put(count, 0);
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

fn destroy_graph(driver: &mut Session, graph: Handle) -> Outcome {
    let place = driver.graphs.iter().position(|known| *known == graph).ok_or(Code::INVALID_VALUE)?;
    driver.graphs.swap_remove(place);
    Ok(())
}
