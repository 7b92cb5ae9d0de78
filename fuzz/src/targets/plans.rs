//! The plans file.
use std::fmt::Write as _;

use commerce::plans::{self, Aggregation, Cost, Keys, Plans};

/// A file that is read is written from what was read, and read as the same again. Limits make sense.
pub fn plans_file(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let declared = [kernel_meter("members"), kernel_meter("mau"), kernel_meter("storage_bytes")];
    let read = match plans::parse(text, &declared, &[]) {
        Ok(read) => read,
        Err(findings) => {
            assert!(!findings.is_empty(), "a refusal says what is wrong");
            return false;
        }
    };
    for plan in read.plans.values() {
        for (meter, limit) in &plan.limits {
            assert!(limit.included >= 0 && limit.cap.is_none_or(|cap| cap >= limit.included), "{meter}: {limit:?}");
            assert!(!limit.hard || (limit.cap.is_none() && limit.overage.is_none()), "{meter}: {limit:?}");
            let is_public = read.meters.get(meter).is_some_and(|meter| meter.keys == Keys::Any);
            assert!(limit.overage.is_none() || !is_public, "{meter}: anybody could run up an invoice");
        }
        assert!(plan.prices.iter().all(|price| price.amount >= 0), "{:?}", plan.prices);
    }
    for amount in [0, 1, 999, i64::MAX] {
        assert!((0..=amount).contains(&read.connect.fee_of(amount)), "a fee is at most the payment");
    }
    let written = write(&read);
    assert_eq!(plans::parse(&written, &declared, &[]).as_ref(), Ok(&read), "{written}");
    true
}

fn kernel_meter(name: &'static str) -> tenancy::quotas::Meter {
    tenancy::quotas::Meter::platform(name, name, tenancy::quotas::Period::Gauge)
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            ' ' | '!' | '#'..='[' | ']'..='~' => quoted.push(c),
            _ => _ = write!(quoted, "\\U{:08X}", u32::from(c)),
        }
    }
    quoted.push('"');
    quoted
}

fn write(plans: &Plans) -> String {
    let late = if plans.bills_late_usage { "next_invoice" } else { "unbilled" };
    let mut text = format!(
        "currency = {}\ngrace = \"{}ms\"\nlate_usage = \"{late}\"\n",
        quoted(&plans.currency),
        plans.grace.as_millis()
    );
    let connect = &plans.connect;
    let _ = writeln!(
        text,
        "[connect]\nfee_percent = \"{}\"\nfee_fixed = {}\ndestination = {}",
        connect.fee_percent, connect.fee_fixed, connect.destination
    );
    for (name, meter) in &plans.meters {
        let aggregation = match meter.aggregation {
            Aggregation::Sum => "sum",
            Aggregation::Count => "count",
            Aggregation::Max => "max",
            Aggregation::Unique => "unique",
            Aggregation::Latest => "latest",
        };
        let keys = if meter.keys == Keys::Any { "any" } else { "secret" };
        let groups: Vec<String> = meter.group_by.iter().map(|name| quoted(name)).collect();
        let _ = writeln!(
            text,
            "[meters.{name}]\naggregation = \"{aggregation}\"\nunit = {}\nperiod = \"{}\"\nkeys = \"{keys}\"\ngroup_by = [{}]",
            quoted(&meter.meter.unit),
            meter.meter.period.name(),
            groups.join(", ")
        );
    }
    for (name, plan) in &plans.plans {
        let subjects: Vec<&str> = [(plan.for_org, "\"org\""), (plan.for_app, "\"app\"")]
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, s)| *s)
            .collect();
        let _ = writeln!(
            text,
            "[plans.{name}]\nname = {}\nfor = [{}]\nrank = {}\nhidden = {}",
            quoted(&plan.title),
            subjects.join(", "),
            plan.rank,
            plan.hidden
        );
        if let Some(trial) = plan.trial {
            let _ = writeln!(text, "trial = \"{}ms\"", trial.as_millis());
        }
        let _ = writeln!(text, "[plans.{name}.limits]");
        if let Some(pace) = plan.events_per_second {
            let _ = writeln!(text, "usage_events_per_second = {pace}");
        }
        for (meter, limit) in &plan.limits {
            let _ = write!(text, "{meter} = {{ included = {}, hard = {}", limit.included, limit.hard);
            if let Some(cap) = limit.cap {
                let _ = write!(text, ", cap = {cap}");
            }
            if let Some(overage) = &limit.overage {
                let _ = write!(text, ", overage = \"{overage}\"");
            }
            text.push_str(" }\n");
        }
        for price in &plan.prices {
            let per = if price.per_member { "member" } else { "flat" };
            let _ = writeln!(
                text,
                "[[plans.{name}.prices]]\ninterval = \"{}\"\namount = {}\ncurrency = \"{}\"\nper = \"{per}\"",
                price.interval, price.amount, price.currency
            );
            if let Some(id) = &price.processor_id {
                let _ = writeln!(text, "processor_id = {}", quoted(id));
            }
        }
    }
    for cost in &plans.costs {
        let _ = match cost {
            Cost::Metered { meter, amount, from } => {
                writeln!(text, "[[costs]]\nmeter = \"{meter}\"\namount = \"{amount}\"\nfrom = \"{from}\"")
            }
            Cost::Fixed { amount, spread } => writeln!(text, "[[costs]]\nfixed = {amount}\nspread = \"{spread}\""),
        };
    }
    text
}
