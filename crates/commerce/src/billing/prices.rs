//! Which price of the processor stands for a price of the plans file.
use db::{params, row};
use kernel::{
    Janua,
    fault::{Code, Result},
    transact,
};

use crate::{
    payments::{Driver, Kind, NoAnswer},
    plans::{Plan, Plans, Price},
};

pub const NOT_FOR_SALE: Code = Code::new(409, "plan_not_for_sale", "This plan cannot be bought.");

/// The plan that a price of the processor stands for.
pub struct KnownPrice {
    pub plan: String,
    pub per_member: bool,
}

struct Row {
    plan: String,
    price_interval: String,
    processor_id: String,
}
row!(Row { plan, price_interval, processor_id });

/// The plan of a price, by the plans file or by what we made ourselves.
pub async fn plan_of(janua: &Janua, id: &str) -> db::Result<Option<KnownPrice>> {
    let plans = Plans::of(janua);
    for (name, plan) in &plans.plans {
        if let Some(price) = plan.prices.iter().find(|price| price.processor_id.as_deref() == Some(id)) {
            return Ok(Some(KnownPrice { plan: name.clone(), per_member: price.per_member }));
        }
    }
    let sql = "SELECT plan, price_interval, processor_id FROM billing_price WHERE processor_id = $1";
    let found: Option<Row> = janua.db.opt(sql, params![id]).await?;
    Ok(found.map(|row| {
        let prices = plans.plans.get(&row.plan).map(|plan| plan.prices.as_slice()).unwrap_or_default();
        let per_member = prices.iter().any(|price| price.interval == row.price_interval && price.per_member);
        KnownPrice { plan: row.plan, per_member }
    }))
}

/// The processor's id of a price. The sandbox makes what is missing; elsewhere `janua billing sync` does.
pub async fn id_of(janua: &Janua, driver: &Driver, name: &str, plan: &Plan, price: &Price) -> Result<String> {
    if let (Kind::Stripe, Some(id)) = (driver.kind, &price.processor_id) {
        return Ok(id.clone());
    }
    match stored(janua, driver, name, price).await? {
        Some(id) => Ok(id),
        None if driver.kind == Kind::Sandbox => Ok(create(janua, driver, name, plan, price).await?),
        None => Err(NOT_FOR_SALE.because("Its price is not known to the processor yet: run janua billing sync.")),
    }
}

async fn stored(janua: &Janua, driver: &Driver, name: &str, price: &Price) -> db::Result<Option<String>> {
    let sql = "SELECT plan, price_interval, processor_id FROM billing_price WHERE processor = $1 AND livemode = $2
                 AND plan = $3 AND price_interval = $4 AND amount = $5 AND currency = $6";
    let (kind, livemode) = (driver.kind.name(), driver.livemode);
    let params = params![kind, livemode, name, &price.interval, price.amount, &price.currency];
    Ok(janua.db.opt::<Row>(sql, params).await?.map(|row| row.processor_id))
}

async fn create(janua: &Janua, driver: &Driver, name: &str, plan: &Plan, price: &Price) -> Result<String> {
    let key = format!("janua-price-{name}-{}-{}-{}", price.interval, price.amount, price.currency);
    let made = driver.create_price(janua, &key, &plan.title, price).await?;
    transact!(janua, async |tx| {
        let sql = "INSERT INTO billing_price (processor, livemode, plan, price_interval, amount, currency, processor_id, created_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
        let (kind, livemode, now) = (driver.kind.name(), driver.livemode, janua.clock.now());
        let params = params![kind, livemode, name, &price.interval, price.amount, &price.currency, &made, now];
        tx.exec(sql, params).await?;
        Ok(())
    })?;
    Ok(made)
}

/// Creates every price that the processor does not know, and compares the others; answers a line for each.
pub async fn sync(janua: &Janua, driver: &Driver) -> Result<Vec<String>> {
    let mut lines = vec![];
    for (name, plan) in &Plans::of(janua).plans {
        for price in &plan.prices {
            let label = format!("{name} {} {} {}", price.interval, price.amount, price.currency);
            if let (Kind::Stripe, Some(id)) = (driver.kind, &price.processor_id) {
                let wrong = difference(janua, driver, id, price).await?;
                lines.push(wrong.unwrap_or_else(|| format!("{label}: {id} matches")));
            } else if let Some(id) = stored(janua, driver, name, price).await? {
                lines.push(format!("{label}: {id}"));
            } else {
                let id = create(janua, driver, name, plan, price).await?;
                lines.push(format!("{label}: created {id}"));
            }
        }
    }
    Ok(lines)
}

/// How the processor's price differs from the file's; nothing when it does not.
pub async fn difference(janua: &Janua, driver: &Driver, id: &str, price: &Price) -> Result<Option<String>, NoAnswer> {
    let (amount, currency, interval) = match driver.price(janua, id).await {
        Ok(found) => found,
        Err(NoAnswer::Missing) => return Ok(Some(format!("{id}: the processor has no such price"))),
        Err(why) => return Err(why),
    };
    let is_same = amount == price.amount && currency == price.currency && interval == price.interval;
    let file = format!("{} {} a {}", price.amount, price.currency, price.interval);
    Ok((!is_same).then(|| format!("{id}: the processor says {amount} {currency} a {interval}, the file {file}")))
}

/// The plan and interval of a price's id, for the first generation of routes.
pub async fn plan_and_interval(janua: &Janua, id: &str) -> db::Result<Option<(String, String)>> {
    for (name, plan) in &Plans::of(janua).plans {
        if let Some(price) = plan.prices.iter().find(|price| price.processor_id.as_deref() == Some(id)) {
            return Ok(Some((name.clone(), price.interval.clone())));
        }
    }
    let sql = "SELECT plan, price_interval, processor_id FROM billing_price WHERE processor_id = $1";
    Ok(janua.db.opt::<Row>(sql, params![id]).await?.map(|row| (row.plan, row.price_interval)))
}
