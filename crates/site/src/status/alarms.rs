//! Incidents that the installation notices by itself: each alarm opens one when it keeps finding something, and resolves it
//! when it has found nothing for a while. Platform owners get a mail at the start and one at the end.
use std::time::Duration;

use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    installation,
    jobs::{self, Job, Later},
    telemetry::{Alarm, Symptom},
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::platform_owners,
    events::{self, About, By},
    messages::mail::{self, Letter, Mail, Sample},
};

use super::{
    events::IncidentReported,
    incidents::{self, Report},
    model::{AlarmIncident, Impact, Incident, Stage},
};
use crate::Operator;

/// What is found must be found for this long: after a restart everything is late for a moment.
const FOUND_FOR: Duration = Duration::from_mins(2);
/// What is gone must be gone for this long, so that an incident does not open and close in turns.
const WELL_FOR: Duration = Duration::from_mins(5);
/// A job that has been due for longer than this is too late.
const JOBS_LATE: Duration = Duration::from_mins(5);

/// The queue of jobs.
pub const JOBS: Alarm = Alarm {
    key: "jobs",
    check: |janua| {
        Box::pin(async move {
            let now = janua.clock.now();
            let queue = jobs::by_kind(&janua.db, now).await?;
            let oldest = queue.iter().filter_map(|kind| Some((kind.oldest_due?, kind))).min_by_key(|(at, _)| *at);
            Ok(oldest.filter(|(at, _)| now.since(*at) > JOBS_LATE).map(|(at, kind)| Symptom {
                title: "Background work is delayed",
                message: "Emails, webhooks and other work that follows a request take longer than usual.",
                finding: format!(
                    "The oldest job ({}) has been due for {} minutes; {} jobs of this kind wait.",
                    kind.kind,
                    now.since(at).as_secs() / 60,
                    kind.waiting
                ),
                advice: "See which jobs are late, and whether the nodes have work in hand or are down.",
                is_major: false,
            }))
        })
    },
};

/// Asks every alarm, once a minute for all nodes together.
#[derive(Default, Serialize, Deserialize)]
pub struct Watch {}

impl Job for Watch {
    const KIND: &'static str = "status.alarms";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        if !janua.config.of::<Operator>().status_alarms.is_on() {
            return Ok(());
        }
        let mut failed = vec![];
        for alarm in janua.declared::<Alarm>() {
            // An alarm that cannot look has found nothing out: neither opens nor closes anything.
            if let Err(fault) = look(&janua, alarm).await {
                failed.push(format!("{}: {fault}", alarm.key));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(Later::retry(failed.join("; "))) }
    }
}

async fn look(janua: &Janua, alarm: &Alarm) -> Result<()> {
    match (alarm.check)(janua.clone()).await? {
        Some(symptom) => transact!(janua, async |tx| found(tx, janua, alarm.key, &symptom).await),
        None => transact!(janua, async |tx| well(tx, janua, alarm.key).await),
    }
}

/// Where it is noted since when an alarm finds something.
fn fact(key: &str) -> String {
    format!("alarm:{key}")
}

async fn found(tx: &mut Tx, janua: &Janua, key: &'static str, symptom: &Symptom) -> Result<()> {
    let now = janua.clock.now();
    let before = AlarmIncident::newest(tx, key).await?;
    if let Some(before) = &before
        && (before.resolved_at.is_none() || before.well_since.is_none())
    {
        // It goes on. One that an owner resolved meanwhile is not opened again until the alarm has found nothing.
        return Ok(AlarmIncident::set_well(tx, before.id, None).await?);
    }
    let noted = installation::read(&mut *tx, &fact(key)).await?.and_then(|since| since.parse().ok()).map(Timestamp);
    // A clock that went back begins anew.
    let Some(since) = noted.filter(|since| *since <= now) else {
        return Ok(installation::write(tx, &fact(key), &now.0.to_string()).await?);
    };
    if now.since(since) < FOUND_FOR {
        return Ok(());
    }
    installation::remove(tx, &fact(key)).await?;
    let report = Report {
        title: Some(symptom.title.to_owned()),
        impact: Some(if symptom.is_major { Impact::Major } else { Impact::Minor }),
        stage: Some(Stage::Investigating),
        components: Some(components(key)),
        message: symptom.message.to_owned(),
    };
    let incident = incidents::open(tx, janua, report).await?;
    AlarmIncident::mark(tx, incident.id, key).await?;
    tell(tx, janua, &incident, Some(symptom)).await
}

async fn well(tx: &mut Tx, janua: &Janua, key: &'static str) -> Result<()> {
    let now = janua.clock.now();
    let Some(open) = AlarmIncident::newest(tx, key).await?.filter(|open| {
        // One that is over and was seen so needs no more writes, minute after minute.
        open.resolved_at.is_none() || open.well_since.is_none()
    }) else {
        return forget(tx, key).await;
    };
    let Some(since) = open.well_since.filter(|since| *since <= now) else {
        AlarmIncident::set_well(tx, open.id, Some(now)).await?;
        return forget(tx, key).await;
    };
    if open.resolved_at.is_some() || now.since(since) < WELL_FOR {
        return Ok(());
    }
    let report = Report {
        stage: Some(Stage::Resolved),
        message: "Everything works as usual again.".to_owned(),
        ..Report::default()
    };
    let incident = incidents::update(tx, janua, open.id, report).await?;
    tell(tx, janua, &incident, None).await
}

async fn forget(tx: &mut Tx, key: &str) -> Result<()> {
    if installation::read(&mut *tx, &fact(key)).await?.is_some() {
        installation::remove(tx, &fact(key)).await?;
    }
    Ok(())
}

/// The components of the status page that an alarm is about.
fn components(key: &str) -> Vec<String> {
    let name = match key {
        "jobs" | "webhooks" => "jobs",
        "errors" => "api",
        _ => return vec![],
    };
    vec![name.to_owned()]
}

/// Records what became of an incident, and writes to the platform owners.
async fn tell(tx: &mut Tx, janua: &Janua, incident: &Incident, symptom: Option<&Symptom>) -> Result<()> {
    let event = IncidentReported { incident_id: incident.id.to_string(), state: incident.stage.name() };
    events::record(tx, janua, &By::default(), About::default(), &event).await?;
    for owner in platform_owners(tx, janua).await? {
        let Some(email) = owner.email.filter(|_| owner.email_verified) else { continue };
        let (name, title) = (owner.name, incident.title.clone());
        match symptom {
            Some(symptom) => {
                let (finding, advice) = (symptom.finding.clone(), symptom.advice);
                mail::send(tx, janua, &email, &AlarmOpened { name, title, finding, advice }).await?;
            }
            None => mail::send(tx, janua, &email, &AlarmResolved { name, title }).await?,
        }
    }
    Ok(())
}

pub const MAILS: &[Sample] = &[
    Sample(|| {
        Box::new(AlarmOpened {
            name: "Ada".into(),
            title: "Background work is delayed".into(),
            finding: "The oldest job (mail.send) has been due for 7 minutes; 412 jobs of this kind wait.".into(),
            advice: "See which jobs are late, and whether the nodes have work in hand or are down.",
        })
    }),
    Sample(|| Box::new(AlarmResolved { name: "Ada".into(), title: "Background work is delayed".into() })),
];

/// To platform owners: something is wrong, and the status page says so.
struct AlarmOpened {
    name: String,
    title: String,
    finding: String,
    advice: &'static str,
}

impl Mail for AlarmOpened {
    fn name(&self) -> &'static str {
        "alarm_opened"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "The installation noticed a problem",
            "The status page shows a new incident: {}. {} {}",
            "You can add to the incident or resolve it. It is resolved by itself five minutes after the problem is gone.",
        )
        .with(&[&self.title, &self.finding, self.advice])
        .to(&self.name)
        .button("Open observability", "/console/platform/observability")
    }
}

/// To platform owners: it is over.
struct AlarmResolved {
    name: String,
    title: String,
}

impl Mail for AlarmResolved {
    fn name(&self) -> &'static str {
        "alarm_resolved"
    }

    fn letter(&self) -> Letter {
        Letter::new(
            "A problem is over",
            "The incident “{}” is resolved: the problem has not been seen for five minutes.",
            "The status page keeps the incident for 90 days.",
        )
        .with(&[&self.title])
        .to(&self.name)
        .button("Open incidents", "/console/platform/incidents")
    }
}
