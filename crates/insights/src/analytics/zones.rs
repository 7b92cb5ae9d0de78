//! The days of an organization: UTC, or those of a time zone from a certain day on.
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use db::{Notice, Read, params, row};
use jiff::{civil, tz::TimeZone};
use kernel::clock::{Day, Timestamp};
use quick_cache::sync::Cache;
use tenancy::ids::{ApplicationId, OrgId};

/// From when on a time zone counts. The moment begins the day `first_day`, which may have more or fewer than 24 hours.
#[derive(Debug, Clone)]
pub struct Change {
    pub since: Timestamp,
    pub first_day: i64,
    pub zone: String,
}
row!(Change { since, first_day, zone });

/// The time zones that an organization had, oldest first. Before the first one days are those of UTC.
#[derive(Debug, Clone, Default)]
pub struct Zones(pub Vec<Change>);

const UTC: &str = "UTC";

impl Zones {
    pub async fn of_org(mut from: impl Read, org: OrgId) -> db::Result<Self> {
        let sql = "SELECT since, first_day, zone FROM analytics_zone WHERE org_id = $1 ORDER BY since";
        from.all(sql, params![org]).await.map(Self)
    }

    pub async fn of_app(mut from: impl Read, app: ApplicationId) -> db::Result<Self> {
        let sql = "SELECT z.since, z.first_day, z.zone FROM analytics_zone z JOIN app ON app.org_id = z.org_id
                   WHERE app.id = $1 ORDER BY z.since";
        from.all(sql, params![app]).await.map(Self)
    }

    fn at(&self, moment: Timestamp) -> Option<&Change> {
        self.0.iter().rev().find(|change| change.since <= moment)
    }

    /// The name of the time zone at a moment.
    pub fn zone(&self, moment: Timestamp) -> &str {
        self.at(moment).map_or(UTC, |change| &change.zone)
    }

    /// The time zone that will count, and from which day on.
    pub fn next(&self, now: Timestamp) -> Option<&Change> {
        self.0.iter().find(|change| change.since > now)
    }

    /// The day of a moment. Days follow one another, also where a time zone changed; one that is more than a day ahead leaves a
    /// day out.
    pub fn day_of(&self, moment: Timestamp) -> i64 {
        match self.at(moment) {
            None => moment.day().0,
            Some(change) => local_day(&change.zone, moment).max(change.first_day),
        }
    }

    /// The moment at which a day begins.
    pub fn start_of(&self, day: i64) -> Timestamp {
        match self.0.iter().rev().find(|change| change.first_day <= day) {
            None => Day(day).start(),
            Some(change) if change.first_day == day => change.since,
            Some(change) => midnight(&change.zone, day).max(change.since),
        }
    }

    /// When another time zone may begin to count: with the next day, and not within the next minute, so that no transaction
    /// that is under way counts by another one.
    pub fn change_to(&self, zone: &str, now: Timestamp) -> Change {
        let soon = Timestamp(now.0 + 60_000);
        let first_day = self.day_of(soon) + 1;
        Change { since: self.start_of(first_day), first_day, zone: zone.to_owned() }
    }
}

fn local_day(zone: &str, moment: Timestamp) -> i64 {
    let moment = jiff::Timestamp::from_millisecond(moment.0).unwrap_or_default();
    let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
    number(moment.to_zoned(zone).date())
}

fn midnight(zone: &str, day: i64) -> Timestamp {
    let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
    let start = date(day).to_zoned(zone).and_then(|zoned| zoned.start_of_day());
    start.map_or(Day(day).start(), |zoned| Timestamp(zoned.timestamp().as_millisecond()))
}

/// A date as the number of days since 1970.
pub fn number(date: civil::Date) -> i64 {
    let epoch = civil::date(1970, 1, 1);
    epoch.until(date).map_or(0, |span| i64::from(span.get_days()))
}

pub fn date(day: i64) -> civil::Date {
    let day = i32::try_from(day).unwrap_or_default();
    civil::date(1970, 1, 1).checked_add(jiff::Span::new().days(day)).unwrap_or_default()
}

/// The Monday of a day's ISO week.
pub fn week_of(day: i64) -> i64 {
    day - (day + 3).rem_euclid(7)
}

/// The first day of a day's month.
pub fn month_of(day: i64) -> i64 {
    number(date(day).first_of_month())
}

/// The time zones of apps, on this node.
#[derive(Clone)]
pub struct KnownZones(Arc<Remembered>);

struct Remembered {
    cache: Cache<ApplicationId, Arc<Zones>>,
    /// Counts the changes that this node was told of: what was read before one is not remembered after it.
    changes: AtomicU64,
}

impl Default for KnownZones {
    fn default() -> Self {
        Self(Arc::new(Remembered { cache: Cache::new(10_000), changes: AtomicU64::new(0) }))
    }
}

impl KnownZones {
    pub async fn of_app(&self, tx: &mut db::Tx, app: ApplicationId) -> db::Result<Arc<Zones>> {
        if let Some(known) = self.0.cache.get(&app) {
            return Ok(known);
        }
        let before = self.changes();
        let zones = Arc::new(Zones::of_app(tx, app).await?);
        self.remember(app, &zones, before);
        Ok(zones)
    }

    fn changes(&self) -> u64 {
        self.0.changes.load(SeqCst)
    }

    /// Remembers what was read, unless there was a change since then.
    fn remember(&self, app: ApplicationId, zones: &Arc<Zones>, before: u64) {
        if self.changes() != before {
            return;
        }
        self.0.cache.insert(app, zones.clone());
        // A change between the two lines cleared the cache too early.
        if self.changes() != before {
            self.0.cache.remove(&app);
        }
    }

    /// Forgets all time zones when one changed anywhere, or when this node may not have heard of it.
    pub fn hear(&self, notice: &Notice) {
        let is_about_zones = match notice {
            Notice::StartOver => true,
            Notice::News { topic, .. } => topic == super::ZONES,
        };
        if is_about_zones {
            self.0.changes.fetch_add(1, SeqCst);
            self.0.cache.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ZONE_NAMES: [&str; 6] =
        ["UTC", "America/Los_Angeles", "Europe/Zurich", "Asia/Kolkata", "Pacific/Kiritimati", "Pacific/Pago_Pago"];

    #[test]
    fn weeks_begin_on_mondays_and_months_with_the_first() {
        let day = number(civil::date(2026, 11, 18));
        assert_eq!(date(day), civil::date(2026, 11, 18));
        assert_eq!(date(week_of(day)), civil::date(2026, 11, 16));
        assert_eq!(date(month_of(day)), civil::date(2026, 11, 1));
        assert_eq!(week_of(week_of(day)), week_of(day));
        assert_eq!(date(week_of(0)), civil::date(1969, 12, 29));
    }

    #[test]
    fn what_was_read_before_a_change_is_not_remembered_after_its_notice() {
        let (known, app) = (KnownZones::default(), ApplicationId::first_of(Timestamp(7)));
        let zones = Arc::new(Zones::default());
        let before = known.changes();
        known.hear(&Notice::News { topic: super::super::ZONES.into(), body: String::new() });
        known.remember(app, &zones, before);
        assert!(known.0.cache.get(&app).is_none(), "a transaction read it before the change");
        known.remember(app, &zones, known.changes());
        assert!(known.0.cache.get(&app).is_some());
    }

    proptest! {
        /// Whatever an organization changes, its days cover all time without gaps and in order.
        #[test]
        fn days_follow_one_another(changes in prop::collection::vec((0usize..6, 0i64..100 * 3_600_000), 0..5),
                                   moments in prop::collection::vec(0i64..40 * 86_400_000, 1..40)) {
            let start = 1_769_853_600_000_i64;
            let (mut zones, mut now) = (Zones::default(), start);
            for (zone, later) in changes {
                now += later;
                let change = zones.change_to(ZONE_NAMES[zone], Timestamp(now));
                // What has not begun to count is replaced.
                zones.0.retain(|known| known.since < change.since);
                prop_assert!(change.since.0 > now);
                zones.0.push(change);
            }
            let mut moments: Vec<i64> = moments.into_iter().map(|m| start + m).collect();
            moments.sort_unstable();
            let mut last = i64::MIN;
            for moment in moments {
                let day = zones.day_of(Timestamp(moment));
                prop_assert!(day >= last);
                last = day;
                let (from, to) = (zones.start_of(day), zones.start_of(day + 1));
                prop_assert!(from.0 <= moment && moment < to.0, "{day}: {from} {} {to}", Timestamp(moment));
                prop_assert!(to.0 - from.0 <= 51 * 3_600_000);
                prop_assert_eq!(zones.day_of(Timestamp(to.0 - 1)), day);
                prop_assert!(zones.day_of(to) > day);
            }
        }
    }
}
