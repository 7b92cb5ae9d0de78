//! Refused tokens in the log of a machine: one row a minute and code with a count, so that a program that tries for ever
//! fills no table.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Result},
    transact,
};
use serde_json::json;

use super::{Machine, MachineAct, MachineEvent, MachineId};
use crate::events::{self, By};

const MINUTE_MS: i64 = 60_000;
/// More pairs than this are not counted apart; each then has a row of its own.
const MOST: usize = 10_000;

/// When a row was last written, and how many refusals came since.
type Counts = HashMap<(MachineId, &'static str), (Timestamp, u64)>;

/// The refusals of this node, by machine and code.
#[derive(Default)]
pub struct Refusals(Mutex<Counts>);

impl Refusals {
    /// The count for a row that is due, if one is.
    fn due(&self, id: MachineId, code: Code, now: Timestamp) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.retain(|_, (since, _)| now.0 - since.0 < MINUTE_MS);
        }
        match all.get_mut(&(id, code.name)) {
            Some((since, count)) if now.0 - since.0 < MINUTE_MS => {
                *count += 1;
                None
            }
            Some((since, count)) => {
                let due = *count + 1;
                (*since, *count) = (now, 0);
                Some(due)
            }
            None => {
                if all.len() < MOST {
                    all.insert((id, code.name), (now, 0));
                }
                Some(1)
            }
        }
    }
}

/// Notes that a machine was refused a token.
pub async fn note(janua: &Janua, by: &By, machine: &Machine, code: Code) -> Result<()> {
    let Some(count) = janua.own::<Refusals>().due(machine.id, code, janua.clock.now()) else { return Ok(()) };
    let details = json!({ "result": "refused", "code": code.name, "count": count });
    let event = MachineEvent::new(machine.kind, MachineAct::TokenRefused, details);
    db::aside(async {
        transact!(janua, async |tx| Ok(events::record(tx, janua, by, machine.about(), &event).await?))
    })
    .await
}
