//! Usage as stored, and every statement on it.
use std::{collections::BTreeMap, time::Duration};

use db::{Db, Tx, holding, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    http::Key,
    id::Id,
    telemetry::{self, MOST_STEPS, StepKind, TraceStep},
};
use tenancy::apps::{ApplicationId, Environment};

pub type UsageEventId = Id<StoredEvent>;

/// One event.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    pub id: UsageEventId,
    pub app_id: ApplicationId,
    pub environment: Environment,
    pub meter: String,
    pub at: Timestamp,
    pub received_at: Timestamp,
    pub value: i64,
    pub customer: String,
    pub event_id: String,
    /// An object of texts.
    pub properties: serde_json::Value,
    pub cost: Option<String>,
    pub corrects: Option<String>,
}
row!(StoredEvent {
    id,
    app_id,
    environment,
    meter,
    at,
    received_at,
    value,
    customer,
    event_id,
    properties,
    cost,
    corrects
});

struct TracedUsage {
    id: String,
    app_id: String,
    meter: String,
    value: i64,
    received_at: Timestamp,
}
row!(TracedUsage { id, app_id, meter, value, received_at });

/// The usage that a request counted, oldest first.
pub async fn of_request(db: &Db, request: &str) -> db::Result<Vec<TraceStep>> {
    let sql = "SELECT id, app_id, meter, value, received_at FROM usage_event
               WHERE request_id = $1 ORDER BY id LIMIT $2";
    let events: Vec<TracedUsage> = db.all(sql, params![request, MOST_STEPS]).await?;
    let step = |event: TracedUsage| {
        TraceStep::new(StepKind::Usage, event.id, event.received_at, event.meter)
            .with("value", Some(event.value))
            .with("appId", Some(event.app_id))
    };
    Ok(events.into_iter().map(step).collect())
}

impl StoredEvent {
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.send(
            "INSERT INTO usage_event (id, app_id, environment, meter, at, received_at, value, customer, event_id,
                                      properties, cost, corrects, request_id)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
            params![
                self.id,
                self.app_id,
                self.environment,
                &self.meter,
                self.at,
                self.received_at,
                self.value,
                &self.customer,
                &self.event_id,
                &self.properties,
                self.cost.clone(),
                self.corrects.clone(),
                telemetry::request_id().as_deref()
            ],
        )
        .await
    }

    /// Locks it until the transaction ends, so that two corrections come one after the other.
    pub async fn hold(tx: &mut Tx, app: ApplicationId, id: &str) -> db::Result<Option<Self>> {
        tx.opt(holding!("SELECT * FROM usage_event WHERE id = $2 AND app_id = $1"), params![app, id]).await
    }

    /// Its value with all corrections.
    pub async fn corrected_value(&self, tx: &mut Tx) -> db::Result<i64> {
        let sql = "SELECT CAST(COALESCE(SUM(value), 0) AS BIGINT) FROM usage_event WHERE corrects = $1";
        let (corrections,): (i64,) = tx.one(sql, params![self.id.to_string()]).await?;
        Ok(self.value + corrections)
    }

    /// Those of a meter, newest first.
    pub async fn page(
        db: &Db,
        of: &Series<'_>,
        from: Timestamp,
        to: Timestamp,
        below: &Key,
        most: u32,
    ) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM usage_event WHERE app_id = $1 AND environment = $2 AND meter = $3
               AND at >= $4 AND at < $5 AND (at, id) < ($6, $7) AND ($8 = '' OR customer = $8)
             ORDER BY at DESC, id DESC LIMIT $9",
            params![of.app, of.environment, of.meter, from, to, below.at, &below.id, of.customer, most],
        )
        .await
    }
}

/// How long an id is known at the least. Generations are this long, and the last two count.
pub const GENERATION: Duration = Duration::from_hours(24 * 40);

fn generation(now: Timestamp) -> i64 {
    now.0.div_euclid(i64::try_from(GENERATION.as_millis()).unwrap_or(i64::MAX))
}

/// The id of an event, which is to be counted once.
#[derive(Debug, Clone, Copy)]
pub struct Sighting<'a> {
    pub digest: &'a str,
    pub content: &'a str,
    pub event: UsageEventId,
}

/// What is known of an id.
pub struct Seen {
    pub content: String,
    pub event: String,
}
row!(Seen { content, event });

const FIND_SEEN: &str = "SELECT content, event FROM usage_seen WHERE generation IN ($1, $2) AND digest = $3 LIMIT 1";

impl Seen {
    /// Notes the ids of events; answers for each what is known of it when it was seen before, or comes twice.
    pub async fn note(tx: &mut Tx, sightings: &[Sighting<'_>], now: Timestamp) -> db::Result<Vec<Option<Self>>> {
        let this = generation(now);
        let values = |one: &Sighting<'_>| params![this, one.digest, one.content, one.event.to_string(), this - 1];
        let noted = tx
            .exec_each(
                "INSERT INTO usage_seen (generation, digest, content, event)
                 SELECT CAST($1 AS BIGINT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT)
                 WHERE NOT EXISTS (SELECT 1 FROM usage_seen WHERE generation = $5 AND digest = $2)
                 ON CONFLICT (generation, digest) DO NOTHING",
                sightings.iter().map(values).collect(),
            )
            .await?;
        let not_noted = sightings.iter().zip(&noted).filter(|(_, noted)| **noted == 0);
        let known = not_noted.map(|(one, _)| params![this, this - 1, one.digest]).collect();
        let mut known = tx.opt_each(FIND_SEEN, known).await?.into_iter();
        Ok(noted.into_iter().map(|noted| if noted == 0 { known.next().flatten() } else { None }).collect())
    }

    pub async fn find(tx: &mut Tx, digest: &str, now: Timestamp) -> db::Result<Option<Self>> {
        let this = generation(now);
        tx.opt(FIND_SEEN, params![this, this - 1, digest]).await
    }

    /// The event was not counted after all.
    pub async fn forget(tx: &mut Tx, digest: &str, now: Timestamp) -> db::Result<()> {
        let sql = "DELETE FROM usage_seen WHERE generation = $1 AND digest = $2";
        tx.send(sql, params![generation(now), digest]).await
    }
}

/// Deletes the generations that count no more.
pub async fn forget_old_ids(janua: &Janua) -> db::Result<()> {
    let sql = "DELETE FROM usage_seen WHERE (generation, digest) IN
                   (SELECT generation, digest FROM usage_seen WHERE generation < $1 ORDER BY generation LIMIT $2)";
    janua.db.sweep(sql, params![generation(janua.clock.now()) - 1]).await?;
    Ok(())
}

/// What totals are kept of: an app and meter, all customers or one, no property or one value of it.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    pub app: ApplicationId,
    pub environment: Environment,
    pub meter: &'a str,
    pub property: &'a str,
    pub customer: &'a str,
    pub choice: &'a str,
}

impl<'a> Series<'a> {
    /// All customers, no property.
    pub fn all(app: ApplicationId, environment: Environment, meter: &'a str) -> Self {
        Self { app, environment, meter, property: "", customer: "", choice: "" }
    }
}

/// The length of what one row of totals is about, in milliseconds. All time zones of today begin their hours on one.
pub const QUARTER: i64 = 15 * 60 * 1000;

/// Where a row of totals stands within an app and environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub meter: String,
    pub span: &'static str,
    pub property: String,
    pub customer: String,
    pub choice: String,
    pub slot: i64,
}

/// What is added to a row of totals.
#[derive(Debug, Clone, Copy)]
pub struct Addition {
    pub total: i64,
    pub events: i64,
    pub most: i64,
    pub latest: i64,
    pub latest_at: i64,
}

impl Addition {
    pub fn and(self, other: Self) -> Self {
        let (latest, latest_at) = (self.latest_at, self.latest).max((other.latest_at, other.latest)).swap();
        Self {
            total: self.total.saturating_add(other.total),
            events: self.events + other.events,
            most: self.most.max(other.most),
            latest,
            latest_at,
        }
    }
}

trait Swap {
    fn swap(self) -> (i64, i64);
}
impl Swap for (i64, i64) {
    fn swap(self) -> (i64, i64) {
        (self.1, self.0)
    }
}

/// Adds to totals, in the order of their places, which is the same for everybody.
pub async fn add(
    tx: &mut Tx,
    app: ApplicationId,
    environment: Environment,
    additions: &BTreeMap<Place, Addition>,
) -> db::Result<()> {
    for (place, addition) in additions {
        tx.send(
            "INSERT INTO usage_total (app_id, environment, meter, span, property, customer, choice, slot, total, events,
                                      most, latest, latest_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
             ON CONFLICT (app_id, environment, meter, span, property, customer, choice, slot) DO UPDATE SET
               total = CASE WHEN usage_total.total > $14 THEN 9223372036854775807 ELSE usage_total.total + $9 END,
               events = usage_total.events + $10,
               most = CASE WHEN $11 > usage_total.most THEN $11 ELSE usage_total.most END,
               latest = CASE WHEN ($13, $12) > (usage_total.latest_at, usage_total.latest) THEN $12
                             ELSE usage_total.latest END,
               latest_at = CASE WHEN $13 > usage_total.latest_at THEN $13 ELSE usage_total.latest_at END",
            params![
                app,
                environment,
                &place.meter,
                place.span,
                &place.property,
                &place.customer,
                &place.choice,
                place.slot,
                addition.total,
                addition.events,
                addition.most,
                addition.latest,
                addition.latest_at,
                // Totals stop at the largest number there is.
                i64::MAX - addition.total.max(0)
            ],
        )
        .await?;
    }
    Ok(())
}

/// Notes a key as seen in days and months; answers those where it is new.
pub async fn note_unique(
    tx: &mut Tx,
    app: ApplicationId,
    environment: Environment,
    places: Vec<Place>,
    digest: &str,
) -> db::Result<Vec<Place>> {
    let noted = tx
        .exec_each(
            "INSERT INTO usage_unique (app_id, environment, meter, span, property, customer, choice, slot, digest)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
            places.iter().map(|place| unique_values(app, environment, place, digest)).collect(),
        )
        .await?;
    Ok(places.into_iter().zip(noted).filter(|(_, noted)| *noted == 1).map(|(place, _)| place).collect())
}

pub async fn forget_unique(
    tx: &mut Tx,
    app: ApplicationId,
    environment: Environment,
    place: &Place,
    digest: &str,
) -> db::Result<()> {
    tx.send(
        "DELETE FROM usage_unique WHERE app_id = $1 AND environment = $2 AND meter = $3 AND span = $4
           AND property = $5 AND customer = $6 AND choice = $7 AND slot = $8 AND digest = $9",
        unique_values(app, environment, place, digest),
    )
    .await
}

/// A key in a place, as the columns of `usage_unique` name it.
fn unique_values(app: ApplicationId, environment: Environment, place: &Place, digest: &str) -> Vec<db::Value> {
    params![
        app,
        environment,
        &place.meter,
        place.span,
        &place.property,
        &place.customer,
        &place.choice,
        place.slot,
        digest
    ]
}

/// So many values of a property are kept apart.
const CHOICES: i64 = 100;
/// What all further values are counted under.
pub const OTHER: &str = "(other)";

/// The value that totals are kept under.
pub async fn choice(
    tx: &mut Tx,
    app: ApplicationId,
    environment: Environment,
    meter: &str,
    property: &str,
    value: &str,
) -> db::Result<String> {
    let params = params![app, environment, meter, property, value];
    let sql =
        "SELECT choice FROM usage_choice WHERE app_id = $1 AND environment = $2 AND meter = $3 AND property = $4
                 AND choice = $5";
    if tx.opt::<(String,)>(sql, params.clone()).await?.is_some() {
        return Ok(value.to_owned());
    }
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM usage_choice
               WHERE app_id = $1 AND environment = $2 AND meter = $3 AND property = $4";
    let (there,): (i64,) = tx.one(sql, params![app, environment, meter, property]).await?;
    if there >= CHOICES {
        return Ok(OTHER.to_owned());
    }
    let sql = "INSERT INTO usage_choice (app_id, environment, meter, property, choice) VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT DO NOTHING";
    tx.send(sql, params).await?;
    Ok(value.to_owned())
}

/// The totals of one slot.
#[derive(Debug, Clone, Copy)]
pub struct SlotTotal {
    pub slot: i64,
    pub total: i64,
    pub events: i64,
    pub most: i64,
    pub latest: i64,
    pub latest_at: i64,
}
row!(SlotTotal { slot, total, events, most, latest, latest_at });

impl SlotTotal {
    /// Those of a series, oldest first.
    pub async fn all(
        db: &Db,
        of: &Series<'_>,
        span: &'static str,
        from: Timestamp,
        to: Timestamp,
    ) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT slot, total, events, most, latest, latest_at FROM usage_total
             WHERE app_id = $1 AND environment = $2 AND meter = $3 AND span = $4 AND property = $5 AND customer = $6
               AND choice = $7 AND slot >= $8 AND slot < $9 ORDER BY slot",
            params![of.app, of.environment, of.meter, span, of.property, of.customer, of.choice, from, to],
        )
        .await
    }

    /// All of a series as one.
    pub async fn whole(db: &Db, of: &Series<'_>, from: Timestamp, to: Timestamp) -> db::Result<Self> {
        let whole: Whole = db
            .one(
                // In two parts, because a sum that overflows is an error.
                "SELECT CAST(COALESCE(SUM(total / 1048576), 0) AS BIGINT) AS millions,
                    CAST(COALESCE(SUM(total % 1048576), 0) AS BIGINT) AS ones,
                    CAST(COALESCE(SUM(events), 0) AS BIGINT) AS events, COALESCE(MAX(most), 0) AS most,
                    COALESCE(MAX(latest_at), 0) AS latest_at,
                    COALESCE((SELECT latest FROM usage_total
                              WHERE app_id = $1 AND environment = $2 AND meter = $3 AND span = 'q' AND property = $4
                                AND customer = $5 AND choice = $6 AND slot >= $7 AND slot < $8
                              ORDER BY slot DESC LIMIT 1), 0) AS latest
             FROM usage_total
             WHERE app_id = $1 AND environment = $2 AND meter = $3 AND span = 'q' AND property = $4 AND customer = $5
               AND choice = $6 AND slot >= $7 AND slot < $8",
                params![of.app, of.environment, of.meter, of.property, of.customer, of.choice, from, to],
            )
            .await?;
        let Whole { millions, ones, events, most, latest, latest_at } = whole;
        let total = millions.saturating_mul(1 << 20).saturating_add(ones);
        Ok(Self { slot: 0, total, events, most, latest, latest_at })
    }

    /// How many unique keys there were in days that follow each other.
    pub async fn unique(db: &Db, of: &Series<'_>, from: Timestamp, to: Timestamp) -> db::Result<i64> {
        let (unique,): (i64,) = db
            .one(
                "SELECT CAST(COUNT(DISTINCT digest) AS BIGINT) FROM usage_unique
                 WHERE app_id = $1 AND environment = $2 AND meter = $3 AND span = 'd' AND property = $4
                   AND customer = $5 AND choice = $6 AND slot >= $7 AND slot < $8",
                params![of.app, of.environment, of.meter, of.property, of.customer, of.choice, from, to],
            )
            .await?;
        Ok(unique)
    }
}

/// The totals of many slots; `millions` has units of 2^20.
struct Whole {
    millions: i64,
    ones: i64,
    events: i64,
    most: i64,
    latest: i64,
    latest_at: i64,
}
row!(Whole { millions, ones, events, most, latest, latest_at });

/// The customers of a meter, from one on, in their order.
pub async fn customers(
    db: &Db,
    of: &Series<'_>,
    from: Timestamp,
    to: Timestamp,
    first: &str,
    most: u32,
) -> db::Result<Vec<String>> {
    let found: Vec<(String,)> = db
        .all(
            "SELECT customer FROM usage_total
             WHERE app_id = $1 AND environment = $2 AND meter = $3 AND span = 'q' AND property = '' AND customer >= $4
               AND customer <> '' AND choice = '' AND slot >= $5 AND slot < $6
             GROUP BY customer ORDER BY customer LIMIT $7",
            params![of.app, of.environment, of.meter, first, from, to, most],
        )
        .await?;
    Ok(found.into_iter().map(|(customer,)| customer).collect())
}

/// The values of a property, from one on, in their order.
pub async fn choices(
    db: &Db,
    of: &Series<'_>,
    from: Timestamp,
    to: Timestamp,
    first: &str,
    most: u32,
) -> db::Result<Vec<String>> {
    let found: Vec<(String,)> = db
        .all(
            "SELECT choice FROM usage_total
             WHERE app_id = $1 AND environment = $2 AND meter = $3 AND span = 'q' AND property = $4 AND customer = $5
               AND choice >= $6 AND slot >= $7 AND slot < $8
             GROUP BY choice ORDER BY choice LIMIT $9",
            params![of.app, of.environment, of.meter, of.property, of.customer, first, from, to, most],
        )
        .await?;
    Ok(found.into_iter().map(|(choice,)| choice).collect())
}

/// What a meter counted for an app from one quarter of an hour to another, as reports and invoices have it. Unique keys are
/// counted by days in UTC.
pub async fn total_of(
    janua: &Janua,
    app: ApplicationId,
    environment: Environment,
    meter: &crate::plans::TrackedMeter,
    from: Timestamp,
    to: Timestamp,
) -> db::Result<i64> {
    use crate::plans::Aggregation;
    let of = Series { app, environment, meter: &meter.meter.name, property: "", customer: "", choice: "" };
    if meter.aggregation == Aggregation::Unique {
        return SlotTotal::unique(&janua.db, &of, from.day().start(), to.day().start()).await;
    }
    let whole = SlotTotal::whole(&janua.db, &of, from, to).await?;
    Ok(match meter.aggregation {
        Aggregation::Count => whole.events,
        Aggregation::Max => whole.most,
        Aggregation::Latest => whole.latest,
        Aggregation::Sum | Aggregation::Unique => whole.total,
    })
}

/// Of a whole app; `millions` has units of 2^20, because a sum that overflows is an error.
struct TotalOfApp {
    app_id: String,
    org_id: String,
    millions: i64,
    ones: i64,
    events: i64,
    most: i64,
}
row!(TotalOfApp { app_id, org_id, millions, ones, events, most });

/// What a meter counted for every app: app, organization, quantity. Unique keys are added up by days.
pub async fn totals_of_all(
    db: &Db,
    meter: &crate::plans::TrackedMeter,
    from: Timestamp,
    to: Timestamp,
) -> db::Result<Vec<(String, String, i64)>> {
    use crate::plans::Aggregation;
    let span = if meter.aggregation == Aggregation::Unique { "d" } else { "q" };
    let rows: Vec<TotalOfApp> = db
        .all(
            // From app to app, which SQLite does where the join says so: the totals of an app and meter lie together, among
            // many more of its customers and properties.
            "SELECT usage_total.app_id, app.org_id, CAST(SUM(total / 1048576) AS BIGINT) AS millions,
                    CAST(SUM(total % 1048576) AS BIGINT) AS ones, CAST(SUM(events) AS BIGINT) AS events, MAX(most) AS most
             FROM app CROSS JOIN usage_total
             WHERE usage_total.app_id = app.id AND usage_total.environment = 'live' AND usage_total.meter = $1
               AND usage_total.span = $2 AND usage_total.property = '' AND usage_total.customer = ''
               AND usage_total.choice = '' AND usage_total.slot >= $3 AND usage_total.slot < $4
             GROUP BY usage_total.app_id, app.org_id",
            params![&*meter.meter.name, span, from, to],
        )
        .await?;
    let rows = rows.into_iter().map(|row| {
        let quantity = match meter.aggregation {
            Aggregation::Count => row.events,
            Aggregation::Max | Aggregation::Latest => row.most,
            Aggregation::Sum | Aggregation::Unique => row.millions.saturating_mul(1 << 20).saturating_add(row.ones),
        };
        (row.app_id, row.org_id, quantity)
    });
    Ok(rows.collect())
}

struct EventCost {
    app_id: String,
    org_id: String,
    cost: String,
    events: i64,
}
row!(EventCost { app_id, org_id, cost, events });

/// What events said they cost: app, organization, sum, currency.
pub async fn event_costs(
    db: &Db,
    from: Timestamp,
    to: Timestamp,
) -> db::Result<Vec<(String, String, crate::payments::money::Exact, String)>> {
    use crate::payments::money::Exact;
    let rows: Vec<EventCost> = db
        .all(
            // The events first, by the index of those that cost something.
            "SELECT usage_event.app_id, app.org_id, cost, CAST(COUNT(*) AS BIGINT) AS events
             FROM usage_event CROSS JOIN app
             WHERE usage_event.cost IS NOT NULL AND usage_event.environment = 'live' AND usage_event.at >= $1
               AND usage_event.at < $2 AND app.id = usage_event.app_id
             GROUP BY usage_event.app_id, app.org_id, cost",
            params![from, to],
        )
        .await?;
    let mut sums: BTreeMap<(String, String, String), Exact> = BTreeMap::new();
    for row in rows {
        let Some((amount, currency)) = row.cost.split_once(' ') else { continue };
        let amount = Exact::parse(amount).and_then(|amount| amount.times(row.events)).unwrap_or_default();
        let sum = sums.entry((row.app_id, row.org_id, currency.to_owned())).or_default();
        *sum = *sum + amount;
    }
    Ok(sums.into_iter().map(|((app, org, currency), sum)| (app, org, sum, currency)).collect())
}
