//! What one deployment may have, by the plan of the organization. Without a plans file only what protects the machine counts.
use db::Tx;
use kernel::{
    Janua,
    archive::{ArchiveLimits, Overrides},
};
use tenancy::{
    orgs::OrgId,
    quotas::{self, Limit, Meter, Period, PlanLimit},
};

/// Counted for reports, each month.
pub const DEPLOYS: Meter = Meter::platform("deploys", "deployments", Period::Month);
/// Limits how many there are in a day.
pub const DEPLOYS_PER_DAY: Meter = Meter::platform("deploys_per_day", "deployments", Period::Day);

// Sizes that plans limit; nothing is counted.
const ARCHIVE: Meter = Meter::platform("archive_bytes", "bytes", Period::Gauge);
const UNPACKED: Meter = Meter::platform("unpacked_bytes", "bytes", Period::Gauge);
const FILES: Meter = Meter::platform("deploy_files", "files", Period::Gauge);
const FILE: Meter = Meter::platform("file_bytes", "bytes", Period::Gauge);
const KEPT: Meter = Meter::platform("deployments_kept", "deployments", Period::Gauge);

pub const CHECKED: &[PlanLimit] =
    &[PlanLimit(ARCHIVE), PlanLimit(UNPACKED), PlanLimit(FILES), PlanLimit(FILE), PlanLimit(KEPT)];

/// The largest archive of any plan.
pub const LARGEST_ARCHIVE: u64 = 500 << 20;
/// A bomb of zeros has about 1000:1, real sites have 3:1 to 10:1.
const HIGHEST_RATIO: u64 = 200;
const RATIO_FROM: u64 = 10 << 20;
const LARGEST_UNPACKED: u64 = 4 << 30;
const MOST_FILES: u64 = 100_000;
const LARGEST_FILE: u64 = 500 << 20;
/// How many ready deployments of an app are kept where no plan says otherwise.
const MOST_KEPT: u64 = 50;

async fn of(tx: &mut Tx, janua: &Janua, org: OrgId, meter: &Meter, most: u64) -> db::Result<u64> {
    let limit = quotas::limit_of(tx, janua, org, meter).await?.and_then(|(_, limit)| limit);
    let limit = limit.as_ref().and_then(Limit::ceiling).and_then(|limit| u64::try_from(limit).ok());
    Ok(limit.map_or(most, |limit| limit.min(most)))
}

pub async fn of_archive(tx: &mut Tx, janua: &Janua, org: OrgId) -> db::Result<ArchiveLimits> {
    Ok(ArchiveLimits {
        archive: of(tx, janua, org, &ARCHIVE, LARGEST_ARCHIVE).await?,
        unpacked: of(tx, janua, org, &UNPACKED, LARGEST_UNPACKED).await?,
        files: of(tx, janua, org, &FILES, MOST_FILES).await?,
        file: of(tx, janua, org, &FILE, LARGEST_FILE).await?,
        ratio: HIGHEST_RATIO,
        ratio_from: RATIO_FROM,
        overrides: Overrides::Any,
    })
}

/// How many ready deployments of an app are kept: the live one, and at least one to go back to.
pub async fn kept(tx: &mut Tx, janua: &Janua, org: OrgId) -> db::Result<u32> {
    let limit = quotas::limit_of(tx, janua, org, &KEPT).await?.and_then(|(_, limit)| limit);
    let limit = limit.as_ref().and_then(Limit::ceiling).and_then(|limit| u64::try_from(limit).ok());
    Ok(u32::try_from(limit.unwrap_or(MOST_KEPT).clamp(2, 1000)).unwrap_or(2))
}
