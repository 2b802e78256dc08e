//! Graphs: work with its dependencies, and launches of it.

use sim_engine::{Operation, Position, Work};

use crate::code::{Code, Outcome};
use crate::state::{Driver, Handle};
use crate::stream::Kind;

/// `CUgraphEdgeData`. All zeros is an ordinary dependency, and there are no others here.
pub(crate) type EdgeData = [u8; 8];

/// A `CUgraph`.
#[derive(Default)]
pub(crate) struct Graph {
    /// Each comes after those that it depends on.
    pub(crate) nodes: Vec<Node>,
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) handle: Handle,
    /// The places of the nodes that it depends on.
    pub(crate) after: Vec<usize>,
    pub(crate) work: Work,
    /// The context of the stream that captured it.
    pub(crate) context: Handle,
    /// Otherwise the program added it to the graph.
    pub(crate) is_captured: bool,
}

/// A `CUgraphExec`.
pub(crate) struct Executable {
    nodes: Vec<Node>,
    /// The end of its last launch.
    last: Option<Position>,
}

impl Graph {
    /// Whether each captured node is among these or precedes one of them.
    pub(crate) fn is_joined(&self, last: &[usize]) -> bool {
        let mut reached = vec![false; self.nodes.len()];
        let mut next = last.to_vec();
        while let Some(place) = next.pop() {
            if !std::mem::replace(&mut reached[place], true) {
                next.extend(&self.nodes[place].after);
            }
        }
        self.nodes.iter().zip(reached).all(|(node, reached)| reached || !node.is_captured)
    }

    fn place(&self, node: Handle) -> Outcome<usize> {
        self.nodes.iter().position(|known| known.handle == node).ok_or(Code::INVALID_VALUE)
    }

    /// Returns all edges, from each node to one that depends on it.
    pub(crate) fn edges(&self) -> Vec<(Handle, Handle)> {
        let of = |node: &Node| -> Vec<_> {
            node.after.iter().map(|before| (self.nodes[*before].handle, node.handle)).collect()
        };
        self.nodes.iter().flat_map(of).collect()
    }
}

impl Driver {
    pub(crate) fn graph(&self, graph: Handle) -> Outcome<&Graph> {
        self.graphs.get(&graph).ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn add_empty_node(&mut self, graph: Handle, dependencies: &[Handle]) -> Outcome<Handle> {
        let (handle, context) = (self.engine.new_handle(), self.current()?);
        let graph = self.graphs.get_mut(&graph).ok_or(Code::INVALID_VALUE)?;
        let after = dependencies.iter().map(|node| graph.place(*node)).collect::<Outcome<_>>()?;
        graph.nodes.push(Node { handle, after, work: Work::Nothing, context, is_captured: false });
        Ok(handle)
    }

    pub(crate) fn instantiate(&mut self, graph: Handle) -> Outcome<Handle> {
        if self.is_being_built(graph) {
            return Err(Code::INVALID_VALUE);
        }
        let nodes = self.graph(graph)?.nodes.clone();
        let handle = self.engine.new_handle();
        self.executables.insert(handle, Executable { nodes, last: None });
        Ok(handle)
    }

    pub(crate) fn executable(&mut self, executable: Handle) -> Outcome<&mut Executable> {
        self.executables.get_mut(&executable).ok_or(Code::INVALID_VALUE)
    }

    /// Launches a graph in a stream. Each node gets a lane of its own, so they happen in any order that the
    /// dependencies permit.
    pub(crate) fn launch_graph(&mut self, executable: Handle, stream: Handle) -> Outcome {
        if self.is_captured(stream) {
            return Err(Code::NOT_SUPPORTED);
        }
        let Executable { nodes, last } = self.executable(executable)?;
        let (nodes, last) = (nodes.clone(), *last);
        let start = self.submit_operation(stream, Operation::new(Work::Nothing).after(last))?;
        let mut ends: Vec<Option<Position>> = Vec::new();
        for node in nodes {
            let device = self.context(node.context)?.device;
            let lane = self.open_stream(node.context, device, Kind::NonBlocking, 0);
            let after = node.after.iter().filter_map(|place| ends[*place]).chain(start);
            ends.push(self.engine.submit(lane, Operation::new(node.work).after(after)));
            self.engine.close_lane(lane);
        }
        let end = self.submit_operation(stream, Operation::new(Work::Nothing).after(ends.into_iter().flatten()))?;
        self.executable(executable)?.last = end;
        Ok(())
    }
}
