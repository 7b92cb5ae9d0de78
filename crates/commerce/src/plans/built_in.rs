//! The plans of an installation without a plans file. Nothing is sold or limited.
use std::{collections::BTreeMap, time::Duration};

use tenancy::quotas::{Meter, Period};

use super::{Aggregation, Keys, Plan, Plans, Price, TrackedMeter};

pub fn plan(title: &str, rank: i64) -> Plan {
    Plan {
        title: title.to_owned(),
        for_org: true,
        for_app: false,
        rank,
        hidden: false,
        trial: None,
        prices: vec![],
        limits: BTreeMap::new(),
        events_per_second: None,
    }
}

/// The names that every installation has, also where a file does not name them.
pub fn all() -> BTreeMap<String, Plan> {
    let names = [("free", "Free", 0), ("pro", "Pro", 10), ("enterprise", "Enterprise", 20)];
    names.map(|(name, title, rank)| (name.to_owned(), plan(title, rank))).into()
}

/// With one meter to try tracking with.
pub fn plans() -> Plans {
    let api_calls = TrackedMeter {
        meter: Meter { name: "api_calls".into(), unit: "calls".into(), period: Period::Month },
        aggregation: Aggregation::Sum,
        keys: Keys::Any,
        group_by: vec![],
    };
    let mut plans = all();
    if let Some(pro) = plans.get_mut("pro") {
        // A sample to try the sandbox with; elsewhere only what stands in a file is sold.
        pro.prices = [("month", 2000), ("year", 20_000)]
            .map(|(interval, amount)| Price {
                interval: interval.into(),
                amount,
                currency: "usd".into(),
                per_member: false,
                processor_id: None,
            })
            .into();
    }
    Plans {
        currency: "usd".into(),
        grace: Duration::from_hours(24 * 7),
        bills_late_usage: true,
        meters: [("api_calls".to_owned(), api_calls)].into(),
        plans,
        costs: vec![],
        connect: crate::connect::Terms::default(),
    }
}
