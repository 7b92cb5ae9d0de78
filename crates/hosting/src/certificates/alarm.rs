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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use db::params;
    use identity::testing::signed_in;
    use kernel::{config::Config, testing::TestJanua};

    use super::*;
    use crate::{
        settings::Directory,
        tests::{feature, id, make_app},
    };

    const DAY: Duration = Duration::from_hours(24);

    #[tokio::test]
    async fn certificates_that_are_not_renewed_are_noticed() {
        let authority = "https://authority.example.test/directory";
        let config = Config::for_tests()
            .with(|settings: &mut Settings| settings.acme = Directory(Some(authority.parse().unwrap())));
        let t = TestJanua::start_with(config, feature).await;
        let ada = signed_in(&t, "ada@example.com").await;
        let app = id(&make_app(&t, &ada, "Shop").await).to_owned();
        let now = t.janua.clock.now();
        // Of ninety days so many are left.
        let certify = async |name: &str, app: Option<&str>, left: u32| {
            let sql = "INSERT INTO certificate (name, app_id, created_at, not_before, not_after, renew_at)
                       VALUES ($1, $2, $3, $3, $4, $5)";
            let (start, end) = (now.minus((90 - left) * DAY), now.plus(left * DAY));
            t.janua.db.exec(sql, params![name, app, start, end, end.minus(30 * DAY)]).await.unwrap();
        };
        let check = async || (CERTIFICATES.check)(t.janua.clone()).await.unwrap();
        certify("fresh.example.test", None, 80).await;
        certify("late.example.test", None, 20).await;
        for place in 0..4 {
            certify(&format!("shop{place}.example.test"), Some(&app), 5).await;
        }
        assert_eq!(check().await, None, "there is time, and four domains of apps may lead elsewhere");
        certify("shop4.example.test", Some(&app), 5).await;
        let found = check().await.unwrap();
        assert!(found.finding.contains("5 of domains of apps") && !found.is_major, "{found:?}");
        certify("own.example.test", None, 5).await;
        let found = check().await.unwrap();
        assert!(found.finding.contains("1 of the installation itself") && found.is_major, "{found:?}");
        t.janua.db.exec("DELETE FROM certificate", vec![]).await.unwrap();
        t.run_jobs().await;
        t.finish().await;
    }
}
