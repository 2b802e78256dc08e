//! Graphs.

use sim_engine::out::Out;

use crate::code::{Code, Outcome};
use crate::gate::{exports, required};
use crate::graph::EdgeData;
use crate::state::{Handle, Session};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`, `_UPLOAD`, `_DEVICE_LAUNCH` and `_USE_NODE_PRIORITY`. Only the
/// first and the last are accepted, and have no effect here.
const FLAGS: u64 = 1 | 8;

exports! {
    /// Adds a node that does nothing to a graph, which may be one that a capture is building.
    fn cuGraphAddEmptyNode(node: Out<'_, Handle>, graph: Handle, dependencies: *const Handle, count: usize)
        [Context] => raw add_empty_node;
    /// Returns the edges of a graph, or their number if both arrays are null.
    fn cuGraphGetEdges(graph: Handle, from: *mut Handle, to: *mut Handle, count: Option<&mut usize>)
        [Context] => raw edges;
    /// Launches a graph in a stream, after its earlier launches.
    fn cuGraphLaunch(executable: Handle, stream: Handle) [Context] => safe launch;
    /// Destroys an executable graph. Launched work still happens.
    fn cuGraphExecDestroy(executable: Handle) [Healthy] => safe destroy_executable;
    /// Destroys a graph. Executable graphs made from it stay.
    fn cuGraphDestroy(graph: Handle) [Healthy] => safe destroy;
}

exports! { newer:
    /// Makes an executable graph.
    fn cuGraphInstantiateWithFlags(executable: Out<'_, Handle>, graph: Handle, flags: u64)
        [NoCapture] => safe instantiate;
    /// Prepares a launch. It has no effect here.
    fn cuGraphUpload(executable: Handle, stream: Handle) [Context] => safe upload;
    /// Like `cuGraphGetEdges`, with the data of each edge.
    fn cuGraphGetEdges_v2(
        graph: Handle, from: *mut Handle, to: *mut Handle, data: *mut EdgeData, count: Option<&mut usize>,
    ) [Context] => raw edges_with_data;
}

/// # Safety
/// * `dependencies` has `count` elements, or is null.
unsafe fn add_empty_node(
    driver: &mut Session,
    node: Out<'_, Handle>,
    graph: Handle,
    dependencies: *const Handle,
    count: usize,
) -> Outcome {
    let node = required(node)?;
    let dependencies = match dependencies.is_null() {
        true if count > 0 => return Err(Code::INVALID_VALUE),
        true => &[],
        // SAFETY: the caller promises that many elements.
        false => unsafe { std::slice::from_raw_parts(dependencies, count) },
    };
    node.write(driver.add_empty_node(graph, dependencies)?);
    Ok(())
}

/// # Safety
/// * Each array is null or has room for `count` elements.
unsafe fn edges(
    driver: &mut Session,
    graph: Handle,
    from: *mut Handle,
    to: *mut Handle,
    count: Option<&mut usize>,
) -> Outcome {
    // SAFETY: the caller promises the same.
    unsafe { edges_with_data(driver, graph, from, to, std::ptr::null_mut(), count) }
}

/// # Safety
/// * As [`edges`].
unsafe fn edges_with_data(
    driver: &mut Session,
    graph: Handle,
    from: *mut Handle,
    to: *mut Handle,
    data: *mut EdgeData,
    count: Option<&mut usize>,
) -> Outcome {
    let count = required(count)?;
    let edges = driver.graph(graph)?.edges();
    if from.is_null() && to.is_null() {
        *count = edges.len();
        return Ok(());
    }
    if from.is_null() || to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let room = std::mem::replace(count, edges.len().min(*count));
    // Places beyond the last edge become null.
    for (place, (before, after)) in edges.into_iter().chain(std::iter::repeat((0, 0))).take(room).enumerate() {
        // SAFETY: the caller promises room for that many elements.
        unsafe { from.wrapping_add(place).write(before) };
        // SAFETY: as above.
        unsafe { to.wrapping_add(place).write(after) };
        if !data.is_null() {
            // SAFETY: as above.
            unsafe { data.wrapping_add(place).write(EdgeData::default()) };
        }
    }
    Ok(())
}

fn instantiate(driver: &mut Session, executable: Out<'_, Handle>, graph: Handle, flags: u64) -> Outcome {
    let executable = required(executable)?;
    if flags & !FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    executable.write(driver.instantiate(graph)?);
    Ok(())
}

fn launch(driver: &mut Session, executable: Handle, stream: Handle) -> Outcome {
    let stream = driver.stream(stream)?;
    driver.launch_graph(executable, stream)
}

fn upload(driver: &mut Session, executable: Handle, stream: Handle) -> Outcome {
    driver.stream(stream)?;
    driver.executable(executable).map(drop)
}

fn destroy_executable(driver: &mut Session, executable: Handle) -> Outcome {
    driver.executables.remove(&executable).map(drop).ok_or(Code::INVALID_VALUE)
}

fn destroy(driver: &mut Session, graph: Handle) -> Outcome {
    if driver.is_being_built(graph) {
        return Err(Code::INVALID_VALUE);
    }
    driver.graphs.remove(&graph).map(drop).ok_or(Code::INVALID_VALUE)
}
