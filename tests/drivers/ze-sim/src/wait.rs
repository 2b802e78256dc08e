//! How the host waits.

use std::time::{Duration, Instant};

use sim_engine::{Condition, Waited};

use crate::result::{Outcome, Refusal};
use crate::state::Session;

/// After this many consecutive polls without progress, a wait with a timeout assumes that there will be none.
const IDLE_LOOKS: u32 = 64;

/// Waits until all conditions hold. The timeout is in virtual nanoseconds; 0 does not wait, and the largest number
/// waits forever. The awaited work belongs to these devices.
pub(crate) fn wait(session: &mut Session, conditions: &[Condition], timeout: u64, devices: &[usize]) -> Outcome {
    let outcome = match timeout {
        0 => {
            session.advance();
            look(session, conditions)
        }
        u64::MAX => wait_for_ever(session, conditions, devices),
        _ => wait_a_while(session, conditions, timeout),
    };
    match is_lost(session, conditions, devices) {
        true => Err(Refusal::DEVICE_LOST),
        false => outcome,
    }
}

/// Whether a device was lost meanwhile, together with awaited work. If there are other devices, some of them may still
/// complete theirs.
fn is_lost(session: &Session, conditions: &[Condition], devices: &[usize]) -> bool {
    let is_vain = |condition: &Condition| match condition {
        Condition::Set(signal) => !session.engine.holds(*condition) && session.engine.setting(*signal).is_empty(),
        Condition::Over(_) => false,
    };
    let some = devices.iter().any(|device| session.is_lost(*device));
    session.are_all_lost(devices) || (some && conditions.iter().any(is_vain))
}

fn look(session: &Session, conditions: &[Condition]) -> Outcome {
    let holds = |condition: &Condition| session.engine.holds(*condition);
    if conditions.iter().all(holds) { Ok(()) } else { Err(Refusal::NOT_READY) }
}

/// Lets work happen as for a caller that polls. Held work does not happen.
fn wait_a_while(session: &mut Session, conditions: &[Condition], timeout: u64) -> Outcome {
    let deadline = session.engine.clock.saturating_add(timeout);
    let mut idle = 0;
    while look(session, conditions).is_err() && session.engine.clock < deadline && idle < IDLE_LOOKS {
        let before = session.engine.clock;
        session.advance();
        idle = if session.engine.clock == before { idle + 1 } else { 0 };
    }
    look(session, conditions)
}

/// Waits without a timeout. Another thread may still submit the awaited work; the wait is considered endless only if
/// none does for a long time.
fn wait_for_ever(session: &mut Session, conditions: &[Condition], devices: &[usize]) -> Outcome {
    let mut last_change = Instant::now();
    let mut submitted = session.submitted;
    loop {
        if session.wait(conditions) == Waited::Over || is_lost(session, conditions, devices) {
            return Ok(());
        }
        if session.submitted != submitted {
            (last_change, submitted) = (Instant::now(), session.submitted);
        }
        let left = session.settings.patience.saturating_sub(last_change.elapsed());
        if left == Duration::ZERO {
            break;
        }
        session.wait_for_others_at_most(left);
    }
    session.violation("a thread waits for something that no submitted work can signal");
    devices.iter().for_each(|device| session.lose(*device));
    Err(Refusal::DEVICE_LOST)
}
