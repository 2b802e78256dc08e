//! Queues whose work may run in any order.

use crate::engine::{Engine, Handle};
use crate::face::Face;
use crate::lane::{Operation, Position};

/// An unordered queue, spread over several lanes: each operation goes to a random one. Only gates, barriers and an
/// operation's own conditions impose an order. With a single lane the queue is in order.
#[derive(Clone, Debug)]
pub struct Spread {
    lanes: Vec<Handle>,
    /// The gate that all later operations wait for.
    gate: Option<Position>,
}

impl Spread {
    /// Creates a queue over open lanes, of which there must be at least one.
    pub fn new(lanes: Vec<Handle>) -> Self {
        Self { lanes, gate: None }
    }

    /// Returns its lanes.
    pub fn lanes(&self) -> &[Handle] {
        &self.lanes
    }

    /// Submits work to one of the lanes.
    pub fn submit<F: Face>(&self, engine: &mut Engine<F>, operation: Operation<F>) -> Option<Position> {
        let lane = engine.random.choice(&self.lanes)?;
        engine.submit(*lane, operation.after(self.gate))
    }

    /// Submits an operation that all later ones wait for.
    pub fn gate<F: Face>(&mut self, engine: &mut Engine<F>, operation: Operation<F>) -> Option<Position> {
        let position = self.submit(engine, operation)?;
        self.gate = Some(position);
        Some(position)
    }

    /// Submits a gate that waits for everything in the queue.
    pub fn barrier<F: Face>(&mut self, engine: &mut Engine<F>, operation: Operation<F>) -> Option<Position> {
        let ends = self.ends(engine);
        self.gate(engine, operation.after(ends))
    }

    /// Returns the current last position of each lane.
    pub fn ends<F: Face>(&self, engine: &Engine<F>) -> Vec<Position> {
        self.lanes.iter().map(|lane| engine.end(*lane)).collect()
    }

    /// Whether all its work is over.
    pub fn is_idle<F: Face>(&self, engine: &Engine<F>) -> bool {
        self.ends(engine).into_iter().all(|end| engine.is_over(end))
    }

    /// Closes the lanes. Their work still happens.
    pub fn close<F: Face>(self, engine: &mut Engine<F>) {
        self.lanes.into_iter().for_each(|lane| engine.close_lane(lane));
    }
}
