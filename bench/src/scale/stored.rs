//! What `bench nodes --json bench/nodes.json` measured: costs of acts on PostgreSQL, and loads whose outcome the model predicts.
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::simulate::{self, World};

/// What one act costs, counted with one client and timed with several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ActCost {
    pub name: String,
    /// Processor time of the node, of PostgreSQL and of the client, in microseconds.
    pub node_us: f64,
    pub database_us: f64,
    pub generator_us: f64,
    /// Round trips from the node to PostgreSQL, and the statements that travel on them.
    pub round_trips: f64,
    pub statements: f64,
    /// Transactions, and those of them that write and so wait for the disk.
    pub transactions: f64,
    pub commits: f64,
    /// Bytes of the write-ahead log, without images of whole pages.
    pub wal_bytes: f64,
    /// Lines of the audit log.
    pub audited: f64,
    /// For acts that all change one row: how many round trips before the commit it is locked. Read from the code.
    pub locks_before_end: Option<usize>,
}

/// A load in a closed loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub what: String,
    pub nodes: usize,
    pub clients: usize,
    /// Of each node's pool.
    pub connections: usize,
    /// What clients ask, and how often in one turn of the list.
    pub mix: Vec<(String, usize)>,
    /// `commit_delay`, and what a commit takes beside it, by a single client of pgbench.
    pub delay_us: f64,
    pub flush_us: f64,
    /// Whether the processors are the limit. Neighbours of the machine take their part of them, so the rate says nothing, and
    /// the processor time of an act is what the model predicts.
    pub is_processor_bound: bool,
    /// Acts a second.
    pub measured: f64,
    /// Processor time of an act: of the nodes, of PostgreSQL and of the clients, in microseconds.
    pub work_us: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measurements {
    /// Processors of the machine.
    pub cores: f64,
    /// What a round trip takes beside the work of the processors.
    pub wire_us: f64,
    /// People a second whom the one transaction that counts analytics counts.
    pub tallied_per_second: f64,
    pub acts: Vec<ActCost>,
    pub runs: Vec<Run>,
}

impl Measurements {
    pub fn stored() -> &'static Self {
        static STORED: LazyLock<Measurements> =
            LazyLock::new(|| serde_json::from_str(include_str!("../../nodes.json")).unwrap_or_default());
        &STORED
    }

    pub fn act(&self, name: &str) -> Option<&ActCost> {
        self.acts.iter().find(|act| act.name == name)
    }

    /// What the model says of the rate of a run. It knows the costs of acts and of a commit, and nothing of the run's outcome.
    pub fn predict(&self, run: &Run) -> f64 {
        let counts = self.counts(run);
        simulate::rate(&World {
            acts: &self.acts,
            list: &spread(&counts),
            nodes: run.nodes,
            clients: run.clients,
            connections: run.connections,
            cores: self.cores,
            delay: run.delay_us * 1e-6,
            flush: run.flush_us * 1e-6,
            wire: self.wire_us * 1e-6,
        })
    }

    /// The same of the processor time of an act.
    pub fn predict_work(&self, run: &Run) -> f64 {
        let (mut work, mut acts) = (0.0, 0.0);
        for (act, count) in self.acts.iter().zip(self.counts(run)) {
            #[expect(clippy::cast_precision_loss, reason = "few")]
            let count = count as f64;
            work += count * (act.node_us + act.database_us + act.generator_us);
            acts += count;
        }
        work / acts
    }

    /// How often each act is in the list of a run.
    fn counts(&self, run: &Run) -> Vec<usize> {
        let in_mix = |name: &str| run.mix.iter().find(|(one, _)| *one == name).map_or(0, |(_, count)| *count);
        self.acts.iter().map(|act| in_mix(&act.name)).collect()
    }
}

/// A list in which each place of `counts` occurs as often as it says, evenly spread.
pub fn spread(counts: &[usize]) -> Vec<usize> {
    let mut list: Vec<(f64, usize)> = vec![];
    for (place, count) in counts.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "few")]
        list.extend((0..*count).map(|number| ((number as f64 + 0.5) / *count as f64, place)));
    }
    list.sort_by(|a, b| a.0.total_cmp(&b.0));
    list.into_iter().map(|(_, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_spread_evenly() {
        assert_eq!(spread(&[1, 4, 0, 1]), [1, 1, 0, 3, 1, 1]);
    }
}
