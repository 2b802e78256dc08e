//! Queues whose work may run in any order.

use crate::engine::{Engine, Handle};
use crate::face::Face;
use crate::lane::{Operation, Position};

/// A queue without an order of its own, on several lanes, of which each operation gets one by chance. Only
/// gates, barriers and what an operation comes after keep things in order. On one lane it is in order.
#[derive(Clone, Debug)]
pub struct Spread {
    lanes: Vec<Handle>,
    /// What all that is submitted comes after.
    gate: Option<Position>,
}

impl Spread {
    /// On open lanes, at least one.
    pub fn new(lanes: Vec<Handle>) -> Self {
        Self { lanes, gate: None }
    }

    /// Its lanes.
    pub fn lanes(&self) -> &[Handle] {
        &self.lanes
    }

    /// Puts work into one of the lanes.
    pub fn submit<F: Face>(&self, engine: &mut Engine<F>, operation: Operation<F>) -> Option<Position> {
        let lane = engine.random.choice(&self.lanes)?;
        engine.submit(*lane, operation.after(self.gate))
    }

    /// Submits what all that comes later waits for.
    pub fn gate<F: Face>(&mut self, engine: &mut Engine<F>, operation: Operation<F>) -> Option<Position> {
        let position = self.submit(engine, operation)?;
        self.gate = Some(position);
        Some(position)
    }

    /// Submits a gate that comes after all that is in the queue.
    pub fn barrier<F: Face>(&mut self, engine: &mut Engine<F>, operation: Operation<F>) -> Option<Position> {
        let ends = self.ends(engine);
        self.gate(engine, operation.after(ends))
    }

    /// Where the work ends so far.
    pub fn ends<F: Face>(&self, engine: &Engine<F>) -> Vec<Position> {
        self.lanes.iter().map(|lane| engine.end(*lane)).collect()
    }

    /// Whether all of it is over.
    pub fn is_idle<F: Face>(&self, engine: &Engine<F>) -> bool {
        self.ends(engine).into_iter().all(|end| engine.is_over(end))
    }

    /// Closes the lanes; the work still happens.
    pub fn close<F: Face>(self, engine: &mut Engine<F>) {
        self.lanes.into_iter().for_each(|lane| engine.close_lane(lane));
    }
}
