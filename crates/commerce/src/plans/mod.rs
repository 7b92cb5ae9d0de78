//! Plans: what each includes, and the meters that apps track. They come from the file of the setting `plans_file`; without
//! one nothing is limited.
mod admin;
mod built_in;
mod file;
mod parse;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use kernel::Janua;
use serde::Serialize;
use tenancy::{
    orgs::Org,
    quotas::{Limit, Limits, Meter, PlanLimit},
};

pub use self::admin::{EVENTS, PlanChanged, UNKNOWN_PLAN, routes, set_plan};
pub use self::parse::parse;
use crate::Settings;

/// How the events of a meter become one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    Sum,
    Count,
    Max,
    Unique,
    Latest,
}

/// Which keys may track a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Keys {
    Any,
    Secret,
}

/// A meter that apps track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedMeter {
    pub meter: Meter,
    pub aggregation: Aggregation,
    pub keys: Keys,
    /// Properties whose values are kept apart.
    pub group_by: Vec<String>,
}

impl TrackedMeter {
    /// Whether it tells how high something is, and not how much was used.
    pub fn has_level(&self) -> bool {
        matches!(self.aggregation, Aggregation::Max | Aggregation::Latest)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    pub interval: String,
    /// In minor units.
    pub amount: i64,
    pub currency: String,
    pub per_member: bool,
    pub processor_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub title: String,
    pub for_org: bool,
    pub for_app: bool,
    /// Up and down compare ranks.
    pub rank: i64,
    pub hidden: bool,
    pub trial: Option<Duration>,
    pub prices: Vec<Price>,
    pub limits: BTreeMap<String, Limit>,
    /// How many usage events a node takes in a second.
    pub events_per_second: Option<u32>,
}

/// What something costs the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cost {
    /// Each unit of a meter, from a day on.
    Metered { meter: String, amount: String, from: String },
    /// An amount a month, spread by a meter.
    Fixed { amount: i64, spread: String },
}

/// All that the file says.
#[allow(clippy::struct_field_names, reason = "fields have the names that the file has")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plans {
    pub currency: String,
    /// How long a plan is kept when a payment is late.
    pub grace: Duration,
    /// Whether usage that comes late is billed with the next invoice.
    pub bills_late_usage: bool,
    pub meters: BTreeMap<String, TrackedMeter>,
    pub plans: BTreeMap<String, Plan>,
    pub costs: Vec<Cost>,
    /// The operator's share of payments to merchants.
    pub connect: crate::connect::Terms,
}

impl Plans {
    /// The plan of an organization. One that is unknown, which the start refuses, has no limits.
    pub fn find(&self, plan: &str) -> Option<&Plan> {
        self.plans.get(plan)
    }

    /// Those of the node.
    pub fn of(janua: &Janua) -> &Self {
        static NONE: OnceLock<Plans> = OnceLock::new();
        janua.own::<Arc<Shelf>>().0.get().unwrap_or_else(|| NONE.get_or_init(built_in::plans))
    }
}

/// Where the node keeps its plans.
#[derive(Default)]
pub struct Shelf(OnceLock<Plans>);

/// Reads the plans before the first request. A wrong file, or one without a plan that is in use, stops the start.
pub async fn start(janua: &Janua) -> Result<(), String> {
    let file = janua.config.of::<Settings>().plans_file.clone();
    load(janua, file.as_deref(), janua.own::<Arc<Shelf>>()).await
}

pub async fn load(janua: &Janua, file: Option<&Path>, shelf: &Shelf) -> Result<(), String> {
    let plans = match file {
        Some(path) => read(path, janua.declared::<Meter>(), janua.declared::<PlanLimit>())?,
        None => built_in::plans(),
    };
    let in_use = Org::plans_in_use(&janua.db).await.map_err(|error| error.to_string())?;
    let missing: Vec<String> = in_use
        .iter()
        .filter(|used| !plans.plans.contains_key(&used.plan))
        .map(|used| match (used.orgs, used.apps) {
            (1, _) => format!("1 organization is on the plan {:?}", used.plan),
            (0, 1) => format!("1 app is on the plan {:?}", used.plan),
            (0, n) => format!("{n} apps are on the plan {:?}", used.plan),
            (n, _) => format!("{n} organizations are on the plan {:?}", used.plan),
        })
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "plans_file: {}, which the file does not have. Put it back, with hidden = true if it is not sold any more",
            missing.join(", ")
        ));
    }
    let limits = plans.plans.iter().map(|(name, plan)| (name.clone(), plan.limits.clone())).collect();
    janua.own::<Limits>().set(limits);
    shelf.0.get_or_init(|| plans);
    Ok(())
}

pub fn read(path: &Path, declared: &[Meter], checked: &[PlanLimit]) -> Result<Plans, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("plans_file: cannot read {}: {error}", path.display()))?;
    parse(&text, declared, checked).map_err(|wrong| {
        let wrong: Vec<String> = wrong.iter().map(|line| format!("{}: {line}", path.display())).collect();
        wrong.join("\n")
    })
}
