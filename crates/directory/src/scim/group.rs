//! Groups as they are kept: those the provider pushes, and one for each role, which is there by itself. Every statement on
//! them.
use std::collections::{BTreeSet, HashMap};

use db::{Composed, Db, Read, Tx, params, row};
use kernel::{Janua, clock::Timestamp, fault::Result};
use serde_json::{Map, Value, json};
use tenancy::orgs::{OrgId, Role, people::PersonId};

use super::{
    answer::{Shape, etag},
    schema::{GROUP, GROUPS},
    search::Asked,
    sql,
};

#[derive(Debug, Clone)]
pub struct Group {
    pub org_id: OrgId,
    pub id: String,
    pub display_name: String,
    pub external_id: Option<String>,
    /// The role that whoever is in it has.
    pub role: Option<Role>,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
row!(Group { org_id, id, display_name, external_id, role, version, created_at, updated_at });

/// A group that shows more of its members than this is not read by anybody.
const MOST_SHOWN: i64 = 10_000;

const FOUND: &str = "FROM (
    SELECT org_id, id, display_name, display_name_key, external_id, role, version, created_at, updated_at,
           1 AS is_pushed FROM person_group
    UNION ALL SELECT org.id, kind.name, kind.name, kind.name, NULL, kind.name, 1, org.created_at, org.created_at, 0
    FROM org CROSS JOIN (SELECT 'owner' AS name UNION ALL SELECT 'admin' UNION ALL SELECT 'member') AS kind
  ) AS found WHERE found.org_id = ";
const COLUMNS: &str = "SELECT found.org_id, found.id, found.display_name, found.external_id, found.role,
    CAST(found.version AS BIGINT) AS version, found.created_at, found.updated_at ";

/// The groups that are there by themselves.
pub fn role_of(id: &str) -> Option<Role> {
    [Role::Owner, Role::Admin, Role::Member].into_iter().find(|role| role.name() == id)
}

pub async fn one(db: &Db, org: OrgId, id: &str) -> db::Result<Option<Group>> {
    let mut question = Composed::new(COLUMNS);
    question.sql(FOUND).value(org).sql(" AND found.id = ").value(id);
    Ok(db.find(question).await?.pop())
}

pub async fn page(db: &Db, org: OrgId, asked: &Asked) -> Result<(i64, Vec<Group>)> {
    let mut question = Composed::new(COLUMNS);
    question.sql(FOUND).value(org);
    let mut count = Composed::new("SELECT CAST(COUNT(*) AS BIGINT) AS total ");
    count.sql(FOUND).value(org);
    if let Some(filter) = &asked.filter {
        for question in [&mut question, &mut count] {
            question.sql(" AND ");
            sql::condition(question, &GROUPS, filter)?;
        }
    }
    match &asked.sort_by {
        Some(by) => sql::order(&mut question, &GROUPS, by, asked.is_descending)?,
        None => _ = question.sql(" ORDER BY "),
    }
    question.sql("found.is_pushed, found.created_at, found.id LIMIT ").value(asked.count);
    question.sql(" OFFSET ").value(asked.start - 1);
    let found: Vec<Group> = db.find(question).await?;
    let total: Vec<(i64,)> = db.find(count).await?;
    Ok((total.first().map_or(0, |(total,)| *total), found))
}

/// Groups as they are shown, in the order they came in. The members of all of them are read together.
pub async fn show(janua: &Janua, org: OrgId, groups: &[Group], shape: &Shape) -> db::Result<Vec<Value>> {
    let seats = if shape.wants("members") { seats(&janua.db, org, groups).await? } else { HashMap::new() };
    let of = |group: &Group| seats.get(&group.id).map_or(&[][..], Vec::as_slice);
    Ok(groups.iter().map(|group| group.show(janua, of(group))).collect())
}

/// Who is in each of these groups, by the groups' ids. One query for all groups that were pushed, and one for each of the
/// three roles.
async fn seats(db: &Db, org: OrgId, groups: &[Group]) -> db::Result<HashMap<String, Vec<PersonId>>> {
    let mut seats: HashMap<String, Vec<PersonId>> = HashMap::new();
    let (roles, pushed): (Vec<_>, Vec<_>) = groups.iter().partition(|group| role_of(&group.id).is_some());
    for role in roles {
        let sql = "SELECT id FROM person WHERE org_id = $1 AND role = $2 ORDER BY place LIMIT $3";
        let found: Vec<(PersonId,)> = db.all(sql, params![org, &role.id, MOST_SHOWN]).await?;
        seats.insert(role.id.clone(), found.into_iter().map(|(id,)| id).collect());
    }
    if pushed.is_empty() {
        return Ok(seats);
    }
    // A cross join, because SQLite takes one in the order it is written in: it would go through all people otherwise.
    let mut question = Composed::new(
        "SELECT group_id, person_id FROM (
             SELECT seat.group_id, seat.person_id, person.place,
                    ROW_NUMBER() OVER (PARTITION BY seat.group_id ORDER BY person.place) AS number
             FROM person_group_member AS seat CROSS JOIN person
             WHERE person.org_id = seat.org_id AND person.id = seat.person_id AND seat.org_id = ",
    );
    question.value(org).sql(" AND seat.group_id IN (").values(pushed.iter().map(|group| &group.id));
    question.sql(")) AS seated WHERE number <= ").value(MOST_SHOWN).sql(" ORDER BY place");
    for Seat { group_id, person_id } in db.find(question).await? {
        seats.entry(group_id).or_default().push(person_id);
    }
    Ok(seats)
}

/// Somebody in a group.
struct Seat {
    group_id: String,
    person_id: PersonId,
}
row!(Seat { group_id, person_id });

impl Group {
    pub async fn find(mut from: impl Read, org: OrgId, id: &str) -> db::Result<Option<Self>> {
        from.opt(
            "SELECT org_id, id, display_name, external_id, role, version, created_at, updated_at FROM person_group
             WHERE org_id = $1 AND id = $2",
            params![org, id],
        )
        .await
    }

    /// Those that were pushed.
    pub async fn pushed(db: &Db, org: OrgId) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT org_id, id, display_name, external_id, role, version, created_at, updated_at FROM person_group
             WHERE org_id = $1 ORDER BY created_at, id LIMIT 1000",
            params![org],
        )
        .await
    }

    pub fn key(name: &str) -> String {
        name.to_lowercase()
    }

    /// `false` when there is one of this name.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let made = tx
            .exec(
                "INSERT INTO person_group (org_id, id, display_name, display_name_key, external_id, version, created_at,
                                           updated_at)
                 VALUES ($1, $2, $3, $4, $5, 1, $6, $6) ON CONFLICT DO NOTHING",
                params![
                    self.org_id,
                    &self.id,
                    &self.display_name,
                    Self::key(&self.display_name),
                    self.external_id.clone(),
                    self.created_at
                ],
            )
            .await?;
        Ok(made == 1)
    }

    /// `false` when there is another one of this name.
    pub async fn save(&self, tx: &mut Tx) -> db::Result<bool> {
        let sql = "SELECT id FROM person_group WHERE org_id = $1 AND display_name_key = $2 AND id <> $3";
        let key = Self::key(&self.display_name);
        if tx.opt::<(String,)>(sql, params![self.org_id, &key, &self.id]).await?.is_some() {
            return Ok(false);
        }
        tx.exec(
            "UPDATE person_group SET display_name = $3, display_name_key = $4, external_id = $5, role = $6,
                                     version = version + 1, updated_at = $7
             WHERE org_id = $1 AND id = $2",
            params![
                self.org_id,
                &self.id,
                &self.display_name,
                key,
                self.external_id.clone(),
                self.role,
                self.updated_at
            ],
        )
        .await?;
        Ok(true)
    }

    pub async fn delete(&self, tx: &mut Tx) -> db::Result<()> {
        let sql = "DELETE FROM person_group WHERE org_id = $1 AND id = $2";
        tx.exec(sql, params![self.org_id, &self.id]).await?;
        Ok(())
    }

    /// Read beside any transaction: there may be many.
    pub async fn members(&self, db: &Db) -> db::Result<BTreeSet<PersonId>> {
        let sql = "SELECT person_id FROM person_group_member WHERE org_id = $1 AND group_id = $2";
        let found: Vec<(PersonId,)> = db.all(sql, params![self.org_id, &self.id]).await?;
        Ok(found.into_iter().map(|(id,)| id).collect())
    }

    /// Takes somebody in of whom it is known that the organization has them.
    pub async fn seat(&self, tx: &mut Tx, person: PersonId) -> db::Result<()> {
        let sql = "INSERT INTO person_group_member (org_id, group_id, person_id)
                   SELECT org_id, $2, id FROM person WHERE org_id = $1 AND id = $3 ON CONFLICT DO NOTHING";
        tx.send(sql, params![self.org_id, &self.id, person]).await
    }

    pub async fn unseat(&self, tx: &mut Tx, person: PersonId) -> db::Result<()> {
        let sql = "DELETE FROM person_group_member WHERE org_id = $1 AND group_id = $2 AND person_id = $3";
        tx.send(sql, params![self.org_id, &self.id, person]).await
    }

    fn show(&self, janua: &Janua, members: &[PersonId]) -> Value {
        let base = janua.config.base_url();
        let mut shown = json!({
            "schemas": [GROUP], "id": self.id, "displayName": self.display_name,
            "meta": {
                "resourceType": "Group", "created": self.created_at, "lastModified": self.updated_at,
                "location": format!("{base}/scim/v2/Groups/{}", self.id), "version": etag(self.version),
            },
        });
        if let Some(external) = &self.external_id {
            shown["externalId"] = json!(external);
        }
        if !members.is_empty() {
            let seat = |id| json!({ "value": id, "$ref": format!("{base}/scim/v2/Users/{id}"), "type": "User" });
            shown["members"] = members.iter().map(seat).collect();
        }
        shown
    }

    /// As a document that can be patched.
    pub fn document(&self, members: &BTreeSet<PersonId>) -> Map<String, Value> {
        let mut document = Map::from_iter([("displayName".to_owned(), json!(self.display_name))]);
        if let Some(external) = &self.external_id {
            document.insert("externalId".into(), json!(external));
        }
        if !members.is_empty() {
            let members = members.iter().map(|id| json!({ "value": id, "type": "User" }));
            document.insert("members".into(), members.collect());
        }
        document
    }
}
