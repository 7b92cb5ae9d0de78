//! What an organization's programs keep with it: a record of their own, changed key by key.
use axum::extract::State;
use kernel::{
    App,
    fault::{Fault, INVALID, NOT_FOUND, Result},
    http::{Json, Routes},
    transact,
};
use serde_json::{Map, Value};
use tenancy::{
    enter::{Admin, InOrg, Member},
    events::{self, About, Event},
    orgs::Org,
};

pub fn routes() -> Routes {
    Routes::new("org").get("/orgs/{id}/metadata", get_metadata, "get org metadata").patch(
        "/orgs/{id}/metadata",
        update_metadata,
        "update org metadata; null deletes a key",
    )
}

const MOST_KEYS: usize = 50;
const LONGEST_KEY: usize = 100;
const MOST_BYTES: usize = 8 * 1024;

type Record = Map<String, Value>;

fn record(org: &Org) -> Record {
    org.metadata.as_object().cloned().unwrap_or_default()
}

async fn get_metadata(caller: InOrg<Member>) -> Json<Record> {
    Json(record(caller.org()))
}

async fn update_metadata(
    State(app): State<App>,
    caller: InOrg<Admin>,
    Json(change): Json<Record>,
) -> Result<Json<Record>> {
    let merged = transact!(app.db, tx, {
        Org::hold(tx, caller.org().id).await?;
        let mut org = Org::find(tx, caller.org().id).await?.ok_or(NOT_FOUND)?;
        let merged = merge(record(&org), &change)?;
        org.metadata = Value::Object(merged.clone());
        org.updated_at = app.clock.now();
        org.save_metadata(tx).await?;
        let event = Event::MetadataUpdated { keys: change.keys().cloned().collect() };
        events::record(tx, &app, &caller.session.by(), About::in_org(org.id), &event).await?;
        Ok::<_, Fault>(merged)
    })?;
    Ok(Json(merged))
}

/// The record with the changes in it; refuses one that would be too much, and says what of it.
fn merge(mut record: Record, change: &Record) -> Result<Record> {
    let mut wrong: Option<Fault> = None;
    for (key, value) in change {
        if key.is_empty() || key.chars().count() > LONGEST_KEY {
            let shown: String = key.chars().take(20).collect();
            let fault = wrong.unwrap_or_else(|| INVALID.into());
            wrong = Some(fault.and(shown, "too_long", format!("a key has 1 to {LONGEST_KEY} characters")));
        }
        match value {
            Value::Null => record.remove(key),
            value => record.insert(key.clone(), value.clone()),
        };
    }
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    if record.len() > MOST_KEYS {
        let message = format!("would hold {} keys; the most is {MOST_KEYS}", record.len());
        return Err(INVALID.at("metadata", "too_many", message));
    }
    let bytes = Value::Object(record.clone()).to_string().len();
    if bytes > MOST_BYTES {
        return Err(INVALID.at(
            "metadata",
            "too_large",
            format!("would take {bytes} bytes; the most is {MOST_BYTES}"),
        ));
    }
    Ok(record)
}
