//! Limits by the hour for text messages and mails, which cost the operator money and recipients patience.
use std::time::Duration;

use db::{Tx, params};
use kernel::{
    Janua,
    http::{Client, NETWORKS_OF_A_SITE},
};

pub const HOUR: Duration = Duration::from_hours(1);
const HOUR_MS: i64 = 3_600_000;

/// Counts one against what a caller's network may have of a kind, and the /48 around it.
pub async fn spend_by_network(tx: &mut Tx, janua: &Janua, kind: &str, client: Client, most: u32) -> db::Result<bool> {
    if let Some(site) = client.site()
        && !spend(tx, janua, kind, &format!("{site}/48"), most.saturating_mul(NETWORKS_OF_A_SITE)).await?
    {
        return Ok(false);
    }
    spend(tx, janua, kind, &client.network().to_string(), most).await
}

/// Counts one against what `whose` may have of a kind; `false` when the hour's budget is spent. Whose it is is kept as a
/// keyed digest.
pub async fn spend(tx: &mut Tx, janua: &Janua, kind: &str, whose: &str, most: u32) -> db::Result<bool> {
    let subject = format!("{kind}:{}", &janua.vault.mac("budget", whose.as_bytes())[..32]);
    let counted = tx
        .exec(
            "INSERT INTO send_budget (subject, hour, sent) VALUES ($1, $2, 1)
             ON CONFLICT (subject) DO UPDATE SET hour = $2,
               sent = CASE WHEN send_budget.hour = $2 THEN send_budget.sent + 1 ELSE 1 END
             WHERE send_budget.hour <> $2 OR send_budget.sent < $3",
            params![subject, janua.clock.now().0.div_euclid(HOUR_MS), most],
        )
        .await?;
    Ok(counted > 0 || !janua.config.rate_limits.is_on())
}

/// Deletes the budgets of hours that are over.
pub(crate) async fn sweep(janua: &Janua) -> db::Result<()> {
    let this_hour = janua.clock.now().0.div_euclid(HOUR_MS);
    let sql = "DELETE FROM send_budget WHERE subject IN
                   (SELECT subject FROM send_budget WHERE hour < $1 ORDER BY hour LIMIT $2)";
    janua.db.sweep(sql, params![this_hour]).await.map(drop)
}
