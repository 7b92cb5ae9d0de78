//! A person as SCIM shows them, and lists of them.
use db::{Composed, FromRow, Row, params, row};
use kernel::{Janua, fault::Result};
use serde_json::{Map, Value, json};
use tenancy::{
    email::Email,
    orgs::{
        OrgId,
        people::{self, Person, PersonId},
    },
};

use super::{
    answer::etag,
    document::INVALID_VALUE,
    schema::{ENTERPRISE, USER, USERS},
    search::Asked,
    sql,
};

/// A person with what hangs on them.
pub struct Seen {
    pub person: Person,
    pub groups: Vec<InGroup>,
}

impl FromRow for Seen {
    fn from_row(row: Row) -> db::Result<Self> {
        Ok(Self { person: Person::from_row(row)?, groups: vec![] })
    }
}

pub struct InGroup {
    person_id: PersonId,
    id: String,
    display_name: String,
}
row!(InGroup { person_id, id, display_name });

const SEEN: &str = "SELECT * FROM person WHERE person.org_id = ";

pub async fn one(janua: &Janua, org: OrgId, id: PersonId) -> Result<Option<Seen>> {
    let mut question = Composed::new(SEEN);
    question.value(org).sql(" AND person.id = ").value(id);
    let mut found = janua.db.find::<Seen>(question).await?;
    add_groups(janua, org, &mut found).await?;
    Ok(found.pop())
}

/// A page, and how many there are in all.
pub async fn page(janua: &Janua, org: OrgId, asked: &Asked) -> Result<(i64, Vec<Seen>)> {
    let (mut found, total) = match (&asked.filter, &asked.sort_by) {
        (None, None) => everybody(janua, org, asked).await?,
        _ => some(janua, org, asked).await?,
    };
    if asked.shape.wants("groups") {
        add_groups(janua, org, &mut found).await?;
    }
    Ok((total, found))
}

/// A page of all is a range of places.
async fn everybody(janua: &Janua, org: OrgId, asked: &Asked) -> Result<(Vec<Seen>, i64)> {
    let found = janua
        .db
        .all(
            "SELECT * FROM person WHERE org_id = $1 AND place >= $2 AND place < $3 ORDER BY place",
            params![org, asked.start, asked.start + asked.count],
        )
        .await?;
    Ok((found, people::count(&janua.db, org).await?))
}

async fn some(janua: &Janua, org: OrgId, asked: &Asked) -> Result<(Vec<Seen>, i64)> {
    let mut question = Composed::new(SEEN);
    question.value(org);
    let mut count = Composed::new("SELECT CAST(COUNT(*) AS BIGINT) AS total FROM person WHERE person.org_id = ");
    count.value(org);
    if let Some(filter) = &asked.filter {
        for question in [&mut question, &mut count] {
            question.sql(" AND ");
            sql::condition(question, &USERS, filter)?;
        }
    }
    match &asked.sort_by {
        Some(by) => sql::order(&mut question, &USERS, by, asked.is_descending)?,
        None => _ = question.sql(" ORDER BY "),
    }
    // Whoever is named is found by the name, and not by going through all places in order.
    let is_named = asked.filter.as_ref().is_some_and(|filter| sql::names_one(&USERS, filter));
    question
        .sql(if is_named { "person.place + 0 LIMIT " } else { "person.place LIMIT " })
        .value(asked.count)
        .sql(" OFFSET ")
        .value(asked.start - 1);
    let found: Vec<Seen> = janua.db.find(question).await?;
    // A first page that is not full says it all.
    let seen = i64::try_from(found.len()).unwrap_or(i64::MAX);
    if asked.start == 1 && seen < asked.count {
        return Ok((found, seen));
    }
    let total: Vec<(i64,)> = janua.db.find(count).await?;
    Ok((found, total.first().map_or(0, |(total,)| *total)))
}

async fn add_groups(janua: &Janua, org: OrgId, found: &mut [Seen]) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    // A cross join, because SQLite takes one in the order it is written in: it would go through all groups otherwise.
    let mut question = Composed::new(
        "SELECT seat.person_id, room.id, room.display_name FROM person_group_member AS seat CROSS JOIN person_group AS room
         WHERE room.org_id = seat.org_id AND room.id = seat.group_id AND seat.org_id = ",
    );
    question.value(org).sql(" AND seat.person_id IN (");
    for (number, seen) in found.iter().enumerate() {
        question.sql(if number == 0 { "" } else { ", " }).value(seen.person.id);
    }
    question.sql(") ORDER BY room.display_name_key, room.id");
    for group in janua.db.find::<InGroup>(question).await? {
        if let Some(seen) = found.iter_mut().find(|seen| seen.person.id == group.person_id) {
            seen.groups.push(group);
        }
    }
    Ok(())
}

impl Seen {
    pub fn show(&self, janua: &Janua) -> Value {
        let (person, base) = (&self.person, janua.config.base_url());
        let mut shown = person.attributes.clone();
        let mut schemas = vec![USER];
        if !shown[ENTERPRISE].is_null() {
            schemas.push(ENTERPRISE);
            let manager = &mut shown[ENTERPRISE]["manager"];
            if let Some(id) = manager["value"].as_str().map(str::to_owned)
                && manager["$ref"].is_null()
            {
                manager["$ref"] = json!(format!("{base}/scim/v2/Users/{id}"));
            }
            if manager.is_null() {
                shown[ENTERPRISE].as_object_mut().map(|fields| fields.remove("manager"));
            }
        }
        if shown["emails"].is_null()
            && let Some(email) = person.email.as_ref().filter(|_| person.source != people::ANNOUNCED)
        {
            shown["emails"] = json!([{ "value": email, "type": "work", "primary": true }]);
        }
        shown["schemas"] = json!(schemas);
        shown["id"] = json!(person.id);
        shown["userName"] = json!(person.user_name);
        shown["active"] = json!(person.active);
        if let Some(external) = &person.external_id {
            shown["externalId"] = json!(external);
        }
        let place = |id: &str| format!("{base}/scim/v2/Groups/{id}");
        let direct = self.groups.iter().map(|group| (group.id.as_str(), group.display_name.as_str()));
        let role = person.role.map(|role| (role.name(), role.name()));
        let groups: Vec<Value> = role
            .into_iter()
            .chain(direct)
            .map(|(id, name)| json!({ "value": id, "$ref": place(id), "display": name, "type": "direct" }))
            .collect();
        if !groups.is_empty() {
            shown["groups"] = Value::Array(groups);
        }
        if let Some(role) = person.role {
            shown["roles"] = json!([{ "value": role, "primary": true }]);
        }
        shown["meta"] = json!({
            "resourceType": "User", "created": person.created_at, "lastModified": person.updated_at,
            "location": format!("{base}/scim/v2/Users/{}", person.id), "version": etag(person.version),
        });
        if let Value::Object(fields) = &mut shown {
            fields.retain(|_, value| !value.is_null());
        }
        shown
    }
}

/// The person as a document that can be patched.
pub fn document(person: &Person) -> Map<String, Value> {
    let mut document = person.attributes.as_object().cloned().unwrap_or_default();
    document.insert("userName".into(), json!(person.user_name));
    document.insert("active".into(), json!(person.active));
    if let Some(external) = &person.external_id {
        document.insert("externalId".into(), json!(external));
    }
    document
}

/// What a document says that is looked up, and the rest of it.
#[derive(Debug, PartialEq)]
pub struct Read {
    pub user_name: String,
    pub external_id: Option<String>,
    /// As it is shown, and as it is compared.
    pub email: Option<(String, String)>,
    pub active: Option<bool>,
    pub attributes: Value,
}

impl Read {
    pub fn of(mut document: Map<String, Value>) -> Result<Self> {
        let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
        let user_name = text(document.remove("userName")).map(|name| name.trim().to_owned());
        let user_name = user_name.filter(|name| !name.is_empty() && name.chars().count() <= 254);
        let user_name = user_name.ok_or_else(|| INVALID_VALUE.because("userName must have 1 to 254 characters."))?;
        let external_id = text(document.remove("externalId")).filter(|id| !id.is_empty());
        if external_id.as_ref().is_some_and(|id| id.len() > 1024) {
            return Err(INVALID_VALUE.because("externalId is too long."));
        }
        let active = document.remove("active").and_then(|value| value.as_bool());
        let email = address(&document, &user_name).map(|e| (e.as_str().to_owned(), e.key().to_owned()));
        Ok(Self { user_name, external_id, email, active, attributes: Value::Object(document) })
    }

    pub fn user_name_key(&self) -> String {
        self.user_name.to_lowercase()
    }
}

/// The primary address, else the first for work, else the first; else the name, if it is an address.
fn address(document: &Map<String, Value>, user_name: &str) -> Option<Email> {
    let list: Vec<&Value> = document.get("emails").and_then(Value::as_array).into_iter().flatten().collect();
    let is_for_work = |one: &&&Value| one["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("work"));
    let chosen = list.iter().find(|one| one["primary"] == true);
    let chosen = chosen.or_else(|| list.iter().find(is_for_work)).or_else(|| list.first());
    match chosen {
        Some(one) => Email::parse(one["value"].as_str()?),
        None => Email::parse(user_name),
    }
}
