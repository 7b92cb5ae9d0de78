//! The alarm about certificates that expire because they are not renewed.
use db::Db;
use kernel::{
    clock::Timestamp,
    telemetry::{Alarm, Symptom},
};

use super::model::Certificate;
use crate::settings::Settings;

/// A domain of an app may lead elsewhere by now, which is its owner's business. As many as this have one cause.
const MANY: usize = 5;

pub const CERTIFICATES: Alarm = Alarm {
    key: "certificates",
    check: |janua| {
        Box::pin(async move {
            if !janua.config.of::<Settings>().orders_certificates() {
                return Ok(None);
            }
            let (own, of_apps) = ending(&janua.db, janua.clock.now()).await?;
            Ok((own > 0 || of_apps >= MANY).then(|| Symptom {
                title: "Certificates are not renewed",
                message: "Browsers will soon refuse connections to some domains.",
                finding: format!(
                    "Certificates about to expire or expired: {own} of the installation itself, {of_apps} of domains of apps."
                ),
                advice: "Check that the certificate authority reaches this server on port 80, and what the log says.",
                is_major: own > 0,
            }))
        })
    },
};

/// The certificates with less than an eighth of their life left, of the installation itself and of apps.
async fn ending(db: &Db, now: Timestamp) -> db::Result<(usize, usize)> {
    let overdue = Certificate::past_renewal(db, now).await?;
    let ending = overdue.iter().filter(|certificate| match (certificate.not_before, certificate.not_after) {
        (Some(start), Some(end)) => end.since(now) <= end.since(start) / 8,
        _ => false,
    });
    let (own, of_apps): (Vec<_>, Vec<_>) = ending.partition(|certificate| certificate.app_id.is_none());
    Ok((own.len(), of_apps.len()))
}
