//! The plans file.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kernel::config::Setting as _;
use tenancy::quotas::{Limit, Meter, Period, PlanLimit};
use toml::Value;

use crate::{connect::Terms, payments::money::Exact};

use super::{
    Aggregation, Cost, Keys, Plan, Plans, Price, TrackedMeter, built_in,
    file::{Findings, Section, amount, decimal, is_name, size, text, truth},
};

const EVENTS_PER_SECOND: &str = "usage_events_per_second";
const GROUPS: usize = 4;

/// Reads a plans file, or answers everything that is wrong with it. `declared` are the meters that the platform
/// counts, and `checked` the limits that it checks without counting.
pub fn parse(file: &str, declared: &[Meter], checked: &[PlanLimit]) -> Result<Plans, Vec<String>> {
    let table = file.parse().map_err(|error: toml::de::Error| vec![error.to_string()])?;
    let (mut top, mut findings) = (Section::new("", table), Findings::default());
    let currency = top.read("currency", &mut findings, currency).unwrap_or_else(|| "usd".into());
    let grace = top.read("grace", &mut findings, length).unwrap_or(Duration::from_hours(24 * 7));
    let bills_late_usage = top.read("late_usage", &mut findings, |value| match value.as_str() {
        Some("next_invoice") => Ok(true),
        Some("unbilled") => Ok(false),
        _ => Err("must be \"next_invoice\" or \"unbilled\"".into()),
    });
    let mut meters = BTreeMap::new();
    for (name, section) in top.tables("meters", &mut findings) {
        if declared.iter().chain(checked.iter().map(|PlanLimit(meter)| meter)).any(|meter| meter.name == name) {
            findings.say(&section.path, "is counted by the platform itself; choose another name");
        } else if is_name(&name) {
            meters.insert(name.clone(), meter(name, section, &mut findings));
        } else {
            findings
                .say(&section.path, "a meter's name has lower-case letters, digits and _, and begins with a letter");
        }
    }
    let known: BTreeSet<&str> =
        declared.iter().map(|meter| &*meter.name).chain(meters.keys().map(String::as_str)).collect();
    let limited: BTreeSet<&str> = known.iter().copied().chain(checked.iter().map(|limit| &*limit.0.name)).collect();
    let mut plans = built_in::all();
    for (name, section) in top.tables("plans", &mut findings) {
        if is_name(&name) {
            let plan = plan(&name, section, &currency, &limited, &mut findings);
            plans.insert(name, plan);
        } else {
            findings
                .say(&section.path, "a plan's name has lower-case letters, digits and _, and begins with a letter");
        }
    }
    for meter in meters.values().filter(|meter| meter.keys == Keys::Any) {
        let name = &*meter.meter.name;
        for (plan, _) in
            plans.iter().filter(|(_, plan)| plan.limits.get(name).is_some_and(|limit| limit.overage.is_some()))
        {
            findings.say(
                &format!("plans.{plan}.limits.{name}.overage"),
                format!("a priced meter must have keys = \"secret\", because publishable keys are public; see meters.{name}"),
            );
        }
    }
    let costs = top.list("costs", &mut findings);
    let costs = costs.into_iter().filter_map(|section| cost(section, &known, &mut findings)).collect();
    let connect = top.take("connect").and_then(|value| Section::of("connect".into(), value, &mut findings));
    let connect = connect.map(|section| terms(section, &mut findings)).unwrap_or_default();
    top.end(&mut findings);
    if findings.0.is_empty() {
        Ok(Plans {
            currency,
            grace,
            bills_late_usage: bills_late_usage.unwrap_or(true),
            meters,
            plans,
            costs,
            connect,
        })
    } else {
        Err(findings.0)
    }
}

fn currency(value: &Value) -> Result<String, String> {
    let code = value.as_str().filter(|code| code.len() == 3 && code.bytes().all(|b| b.is_ascii_lowercase()));
    code.map(str::to_owned).ok_or_else(|| "must be a currency in lower case, such as \"usd\"".into())
}

fn length(value: &Value) -> Result<Duration, String> {
    Duration::parse(value.as_str().unwrap_or_default())
}

fn meter(name: String, mut section: Section, findings: &mut Findings) -> TrackedMeter {
    let aggregation = section.read("aggregation", findings, |value| match value.as_str() {
        Some("sum") => Ok(Aggregation::Sum),
        Some("count") => Ok(Aggregation::Count),
        Some("max") => Ok(Aggregation::Max),
        Some("unique") => Ok(Aggregation::Unique),
        Some("latest") => Ok(Aggregation::Latest),
        _ => Err("must be sum, count, max, unique or latest".into()),
    });
    let period = section.read("period", findings, |value| match value.as_str() {
        Some("month") => Ok(Period::Month),
        Some("day") => Ok(Period::Day),
        Some("none") => Ok(Period::Gauge),
        _ => Err("must be month, day or none".into()),
    });
    let keys = section.read("keys", findings, |value| match value.as_str() {
        Some("any") => Ok(Keys::Any),
        Some("secret") => Ok(Keys::Secret),
        _ => Err("must be any or secret".into()),
    });
    let group_by = section.read("group_by", findings, groups).unwrap_or_default();
    let unit = section.read("unit", findings, text).unwrap_or_else(|| name.clone());
    section.end(findings);
    TrackedMeter {
        meter: Meter { name: name.into(), unit: unit.into(), period: period.unwrap_or(Period::Month) },
        aggregation: aggregation.unwrap_or(Aggregation::Sum),
        keys: keys.unwrap_or(Keys::Secret),
        group_by,
    }
}

fn groups(value: &Value) -> Result<Vec<String>, String> {
    let wrong = || {
        format!("must be a list of at most {GROUPS} names of properties, each once, none of them customer or event")
    };
    let names: Option<Vec<String>> =
        value.as_array().and_then(|values| values.iter().map(|value| value.as_str().map(str::to_owned)).collect());
    let names = names.ok_or_else(wrong)?;
    let is_right = |name: &String| is_name(name) && !["customer", "event"].contains(&name.as_str());
    let once: BTreeSet<&String> = names.iter().collect();
    let fits = names.len() <= GROUPS && once.len() == names.len() && names.iter().all(is_right);
    if fits { Ok(names) } else { Err(wrong()) }
}

fn plan(name: &str, mut section: Section, currency: &str, known: &BTreeSet<&str>, findings: &mut Findings) -> Plan {
    let mut plan = built_in::all().remove(name).unwrap_or_else(|| built_in::plan(name, 0));
    if let Some(title) = section.read("name", findings, text) {
        plan.title = title;
    }
    if let Some((for_org, for_app)) = section.read("for", findings, subjects) {
        (plan.for_org, plan.for_app) = (for_org, for_app);
    }
    if let Some(rank) = section.read("rank", findings, amount) {
        plan.rank = rank;
    }
    plan.hidden = section.read("hidden", findings, truth).unwrap_or_default();
    plan.trial = section.read("trial", findings, length);
    let path = section.path("prices");
    for price in section.list("prices", findings) {
        plan.prices.extend(self::price(price, currency, findings));
    }
    if plan.prices.windows(2).any(|pair| pair[0].currency != pair[1].currency) {
        findings.say(&path, "all prices of one plan must have the same currency");
    }
    let path = section.path("limits");
    if let Some(limits) = section.take("limits").and_then(|value| Section::of(path, value, findings)) {
        for (path, name, value) in limits.rest() {
            if name == EVENTS_PER_SECOND {
                match amount(&value).ok().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0) {
                    Some(n) => plan.events_per_second = Some(n),
                    None => findings.say(&path, "must be a whole number from 1 on"),
                }
            } else if known.contains(name.as_str()) {
                if let Some(limit) = limit(path, value, findings) {
                    plan.limits.insert(name, limit);
                }
            } else {
                let near = known
                    .iter()
                    .max_by(|a, b| strsim::jaro_winkler(a, &name).total_cmp(&strsim::jaro_winkler(b, &name)));
                let near = near.filter(|near| strsim::jaro_winkler(near, &name) > 0.8);
                let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                findings.say(&path, format!("there is no such meter{hint}"));
            }
        }
    }
    section.end(findings);
    plan
}

fn subjects(value: &Value) -> Result<(bool, bool), String> {
    let names: Vec<&str> = match value {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().map(|name| name.as_str().unwrap_or_default()).collect(),
        _ => vec![],
    };
    let is_right = !names.is_empty() && names.iter().all(|name| ["org", "app"].contains(name));
    if is_right {
        Ok((names.contains(&"org"), names.contains(&"app")))
    } else {
        Err("must be \"org\", \"app\" or both".into())
    }
}

fn limit(path: String, value: Value, findings: &mut Findings) -> Option<Limit> {
    if !value.is_table() {
        return size(&value).map(Limit::hard).map_err(|what| findings.say(&path, what)).ok();
    }
    let mut section = Section::of(path, value, findings)?;
    let included = section.read("included", findings, size);
    let (cap_path, path) = (section.path("cap"), section.path.clone());
    let hard = section.read("hard", findings, truth);
    let cap = section.read("cap", findings, size);
    let overage = section.read("overage", findings, decimal);
    section.end(findings);
    let Some(included) = included else {
        findings.say(&path, "needs included, a whole number from 0 on");
        return None;
    };
    if cap.is_some_and(|cap| cap < included) {
        findings.say(&cap_path, "must not be below included");
    }
    if hard == Some(true) && (cap.is_some() || overage.is_some()) {
        findings.say(&path, "a hard limit ends at included, so it has neither cap nor overage");
    }
    // What has a price, or a cap above it, is meant to go on.
    let hard = hard.unwrap_or(cap.is_none() && overage.is_none());
    Some(Limit { included, hard, cap, overage })
}

fn price(mut section: Section, currency: &str, findings: &mut Findings) -> Option<Price> {
    let path = section.path.clone();
    let interval = section.read("interval", findings, |value| match value.as_str() {
        Some(interval @ ("month" | "year")) => Ok(interval.to_owned()),
        _ => Err("must be month or year".into()),
    });
    let amount = section.read("amount", findings, amount);
    let currency = section.read("currency", findings, self::currency).unwrap_or_else(|| currency.to_owned());
    let per_member = section.read("per", findings, |value| match value.as_str() {
        Some("flat") => Ok(false),
        Some("member") => Ok(true),
        _ => Err("must be flat or member".into()),
    });
    let processor_id = section.read("processor_id", findings, text);
    section.end(findings);
    match (interval, amount) {
        (Some(interval), Some(amount)) => {
            Some(Price { interval, amount, currency, per_member: per_member.unwrap_or_default(), processor_id })
        }
        _ => {
            findings.say(&path, "needs interval and amount");
            None
        }
    }
}

fn terms(mut section: Section, findings: &mut Findings) -> Terms {
    let fee_percent = section.read("fee_percent", findings, |value| {
        let percent = decimal(value)?;
        let exact = Exact::parse(&percent).filter(|percent| *percent <= Exact::whole(100));
        exact.ok_or_else(|| "must be at most 100".to_owned())
    });
    let fee_fixed = section.read("fee_fixed", findings, amount).unwrap_or_default();
    let destination = section.read("destination", findings, truth).unwrap_or_default();
    section.end(findings);
    Terms { fee_percent: fee_percent.unwrap_or_default(), fee_fixed, destination }
}

fn cost(mut section: Section, known: &BTreeSet<&str>, findings: &mut Findings) -> Option<Cost> {
    let path = section.path.clone();
    let of_meter = |value: &Value| {
        let name = value.as_str().filter(|name| known.contains(name));
        name.map(str::to_owned).ok_or_else(|| "must be the name of a meter".to_owned())
    };
    let fixed = section.read("fixed", findings, amount);
    let spread = section.read("spread", findings, of_meter);
    let meter = section.read("meter", findings, of_meter);
    let amount = section.read("amount", findings, decimal);
    let from = section.read("from", findings, |value| {
        let day = value.as_str().and_then(|text| text.parse::<jiff::civil::Date>().ok());
        day.map(|day| day.to_string()).ok_or_else(|| "must be a day in quotes, such as \"2026-01-01\"".into())
    });
    section.end(findings);
    match (fixed, spread, meter, amount) {
        (Some(amount), Some(spread), None, None) => Some(Cost::Fixed { amount, spread }),
        (None, None, Some(meter), Some(amount)) => {
            Some(Cost::Metered { meter, amount, from: from.unwrap_or_else(|| "1970-01-01".into()) })
        }
        _ => {
            findings.say(&path, "needs either meter and amount, or fixed and spread");
            None
        }
    }
}
