//! The directory of an organization: its members, and announced persons who have not signed in yet. The stored rows,
//! and every statement on them.
//!
//! An announced person is a row without an account. It gets one when a user with that proven email accepts the
//! invitation: no account is ever taken over because an organization wrote down its email. An account that begins by
//! accepting such an invitation has its home in the organization (`is_home`), which can close it; an account from
//! before cannot be closed by an organization, it only stops being a member.
//!
//! Places are numbered without gaps, so that a page of a list is a range of places: it costs the same at any depth.
use db::{Db, Read, Tx, params, row};
use kernel::clock::Timestamp;
use serde_json::{Value, json};

pub use crate::ids::PersonId;
use crate::{
    ids::{AccountId, OrgId, Role},
    orgs::{Org, members::OrgMember},
};

#[derive(Debug, Clone)]
pub struct Person {
    pub org_id: OrgId,
    pub id: PersonId,
    pub place: i64,
    pub account_id: Option<AccountId>,
    /// The role in the organization; none for a person without an account, or one who is switched off.
    pub role: Option<Role>,
    /// `scim`, or `member` for a member who was not announced.
    pub source: String,
    pub active: bool,
    pub is_home: bool,
    pub comes_back: bool,
    pub user_name: String,
    pub user_name_key: String,
    pub external_id: Option<String>,
    pub email: Option<String>,
    pub email_key: Option<String>,
    /// An object.
    pub attributes: Value,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
row!(Person {
    org_id,
    id,
    place,
    account_id,
    source,
    active,
    is_home,
    comes_back,
    user_name,
    user_name_key,
    external_id,
    email,
    email_key,
    attributes,
    version,
    created_at,
    updated_at,
    role
});

/// The source of persons that the organization's identity provider announced.
pub const ANNOUNCED: &str = "scim";
const CAME_BY_THEMSELVES: &str = "member";

impl Person {
    pub async fn find(mut from: impl Read, org: OrgId, id: PersonId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM person WHERE org_id = $1 AND id = $2", params![org, id]).await
    }

    pub async fn by_user_name(tx: &mut Tx, org: OrgId, key: &str) -> db::Result<Option<Self>> {
        tx.opt("SELECT * FROM person WHERE org_id = $1 AND user_name_key = $2", params![org, key]).await
    }

    pub async fn by_address(tx: &mut Tx, org: OrgId, key: &str) -> db::Result<Option<Self>> {
        let sql = "SELECT * FROM person WHERE org_id = $1 AND email_key = $2 ORDER BY place LIMIT 1";
        tx.opt(sql, params![org, key]).await
    }

    /// The next place, which is the last one. No other transaction gets a place in this organization until this one
    /// ends.
    pub async fn next_place(tx: &mut Tx, org: OrgId) -> db::Result<i64> {
        let sql = "UPDATE org SET people = people + 1 WHERE id = $1 RETURNING people";
        let places: Vec<(i64,)> = tx.put(sql, params![org]).await?;
        places.first().map(|(place,)| *place).ok_or(db::Error::Missing)
    }

    /// Inserts a person; `false` when another person in the organization has the name.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let made = tx
            .exec(
                "INSERT INTO person (org_id, id, place, account_id, source, active, is_home, comes_back, user_name,
                                     user_name_key, external_id, email, email_key, attributes, version, created_at,
                                     updated_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
                 ON CONFLICT DO NOTHING",
                params![
                    self.org_id,
                    self.id,
                    self.place,
                    self.account_id,
                    &self.source,
                    self.active,
                    self.is_home,
                    self.comes_back,
                    &self.user_name,
                    &self.user_name_key,
                    self.external_id.clone(),
                    self.email.clone(),
                    self.email_key.clone(),
                    &self.attributes,
                    self.version,
                    self.created_at,
                    self.updated_at
                ],
            )
            .await?;
        if made == 1 {
            self.index(tx).await?;
        }
        Ok(made == 1)
    }

    /// Writes everything but the place and the role, which [goes along](note_role) with the membership. The version counts.
    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "UPDATE person SET account_id = $3, source = $4, active = $5, is_home = $6, comes_back = $7, user_name = $8,
                               user_name_key = $9, external_id = $10, email = $11, email_key = $12, attributes = $13,
                               version = version + 1, updated_at = $14
             WHERE org_id = $1 AND id = $2",
            params![
                self.org_id,
                self.id,
                self.account_id,
                &self.source,
                self.active,
                self.is_home,
                self.comes_back,
                &self.user_name,
                &self.user_name_key,
                self.external_id.clone(),
                self.email.clone(),
                self.email_key.clone(),
                &self.attributes,
                self.updated_at
            ],
        )
        .await?;
        let sql = "DELETE FROM person_value WHERE org_id = $1 AND person_id = $2";
        tx.exec(sql, params![self.org_id, self.id]).await?;
        self.index(tx).await
    }

    async fn index(&self, tx: &mut Tx) -> db::Result<()> {
        for Found { path, item, value } in values_of(&self.attributes) {
            tx.exec(
                "INSERT INTO person_value (org_id, person_id, path, item, value, folded)
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
                params![self.org_id, self.id, path, item, &value, value.to_lowercase()],
            )
            .await?;
        }
        Ok(())
    }
}

/// One value of an attribute: `emails.value`, the first of them, `ada@example.com`.
#[derive(Debug, PartialEq)]
pub struct Found {
    pub path: String,
    pub item: i64,
    pub value: String,
}

/// Every value in a document, under its path in lower case.
pub fn values_of(attributes: &Value) -> Vec<Found> {
    let mut found = vec![];
    for (name, value) in attributes.as_object().into_iter().flatten() {
        // An extension is named by a URN; its attributes follow a colon.
        match value {
            Value::Object(inner) if name.contains(':') => {
                for (below, value) in inner {
                    walk(&format!("{name}:{below}"), value, &mut found);
                }
            }
            value => walk(name, value, &mut found),
        }
    }
    found
}

fn walk(path: &str, value: &Value, found: &mut Vec<Found>) {
    let items = value.as_array().map_or_else(|| vec![value], |items| items.iter().collect());
    for (item, value) in items.into_iter().enumerate() {
        let item = i64::try_from(item).unwrap_or(i64::MAX);
        let mut put = |path: &str, value: &Value| {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                _ => return,
            };
            found.push(Found { path: path.to_lowercase(), item, value: text });
        };
        match value.as_object() {
            Some(fields) => fields.iter().for_each(|(name, value)| put(&format!("{path}.{name}"), value)),
            None => put(path, value),
        }
    }
}

struct NewMember {
    email: Option<String>,
    email_key: Option<String>,
    email_verified: bool,
    name: String,
}
row!(NewMember { email, email_key, email_verified, name });

/// Connects a new member with the announced person's row, or inserts a new row.
pub(crate) async fn joined(
    tx: &mut Tx,
    org: OrgId,
    account: AccountId,
    role: Role,
    now: Timestamp,
) -> db::Result<()> {
    let sql = "SELECT email, email_key, email_verified, name FROM account WHERE id = $1";
    let known: NewMember = tx.one(sql, params![account]).await?;
    let proven = known.email_key.clone().filter(|_| known.email_verified).unwrap_or_default();
    let waiting: Option<Person> = tx
        .opt(
            "SELECT * FROM person
             WHERE org_id = $1 AND id IN (
                 SELECT id FROM person WHERE org_id = $1 AND account_id = $2
                 UNION SELECT id FROM person WHERE org_id = $1 AND id = $2 AND account_id IS NULL
                 UNION SELECT id FROM person WHERE org_id = $1 AND email_key = $3 AND account_id IS NULL)
             ORDER BY CASE WHEN account_id = $2 THEN 0 WHEN id = $2 THEN 1 ELSE 2 END, place LIMIT 1",
            params![org, account, proven],
        )
        .await?;
    if let Some(person) = waiting {
        let there = Person { account_id: Some(account), active: true, comes_back: false, updated_at: now, ..person };
        there.save(tx).await?;
        // What their groups stand for is theirs from the start.
        let is_admin = role_by_groups(tx, org, there.id).await? == Some(Role::Admin);
        let role = if is_admin { role.max(Role::Admin) } else { role };
        return OrgMember::write_role(tx, org, account, role).await;
    }
    let id: PersonId = account.to_string().parse().map_err(|_| db::Error::Missing)?;
    let address = known.email.clone().map(|email| json!([{ "value": email, "type": "work", "primary": true }]));
    let mut attributes = json!({ "displayName": known.name });
    if let Some(address) = address {
        attributes["emails"] = address;
    }
    let mut person = Person {
        org_id: org,
        id,
        place: Person::next_place(tx, org).await?,
        account_id: Some(account),
        role: None,
        source: CAME_BY_THEMSELVES.to_owned(),
        active: true,
        is_home: false,
        comes_back: false,
        user_name: known.email.clone().unwrap_or_else(|| account.to_string()),
        user_name_key: known.email.as_deref().map_or_else(|| account.to_string(), str::to_lowercase),
        external_id: None,
        email: known.email,
        email_key: known.email_key,
        attributes,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    if !person.insert(tx).await? {
        // Somebody else was given this address as a name.
        person.user_name = account.to_string();
        person.user_name_key.clone_from(&person.user_name);
        person.insert(tx).await?;
    }
    note_role(tx, org, account, Some(role)).await
}

/// Keeps the role that the directory shows what the membership says.
pub(crate) async fn note_role(tx: &mut Tx, org: OrgId, account: AccountId, role: Option<Role>) -> db::Result<()> {
    tx.send("UPDATE person SET role = $3 WHERE org_id = $1 AND account_id = $2", params![org, account, role]).await
}

/// The highest role of a person's groups; none when no group is mapped to a role.
pub async fn role_by_groups(tx: &mut Tx, org: OrgId, person: PersonId) -> db::Result<Option<Role>> {
    let sql = "SELECT DISTINCT room.role FROM person_group_member AS seat
               JOIN person_group AS room ON room.org_id = seat.org_id AND room.id = seat.group_id
               WHERE seat.org_id = $1 AND seat.person_id = $2 AND room.role IS NOT NULL";
    let found: Vec<(Role,)> = tx.all(sql, params![org, person]).await?;
    Ok(found.into_iter().map(|(role,)| role).max())
}

/// A person in a group: the role in the organization, and whether a group makes them an admin.
pub struct Standing {
    pub person_id: PersonId,
    /// None for a person without an account, like the role.
    pub account_id: Option<AccountId>,
    pub role: Option<Role>,
    pub is_admin_by_groups: bool,
}
row!(Standing { person_id, account_id, role, is_admin_by_groups });

/// The people a question finds as `found.person_id`, in order.
macro_rules! standing {
    ($found:literal) => {
        concat!(
            "SELECT found.person_id, org_member.account_id, org_member.role,
                    EXISTS (SELECT 1 FROM person_group_member AS seat
                            JOIN person_group AS room ON room.org_id = seat.org_id AND room.id = seat.group_id
                            WHERE seat.org_id = $1 AND seat.person_id = found.person_id AND room.role = 'admin')
                      AS is_admin_by_groups
             FROM (",
            $found,
            ") AS found
             LEFT JOIN person ON person.org_id = $1 AND person.id = found.person_id
             LEFT JOIN org_member ON org_member.org_id = $1 AND org_member.account_id = person.account_id
             ORDER BY found.person_id"
        )
    };
}

impl Standing {
    pub async fn of(tx: &mut Tx, org: OrgId, person: PersonId) -> db::Result<Option<Self>> {
        let sql = standing!("SELECT id AS person_id FROM person WHERE org_id = $1 AND id = $2");
        tx.opt(sql, params![org, person]).await
    }

    /// Those of a group after the given one, at most so many.
    pub async fn in_group(tx: &mut Tx, org: OrgId, group: &str, after: &str, most: usize) -> db::Result<Vec<Self>> {
        let sql = standing!(
            "SELECT person_id FROM person_group_member WHERE org_id = $1 AND group_id = $2 AND person_id > $3
             ORDER BY person_id LIMIT $4"
        );
        tx.all(sql, params![org, group, after, i64::try_from(most).unwrap_or(i64::MAX)]).await
    }
}

/// The ids of persons in the directory, after the given one, at most so many.
pub async fn ids_after(db: &Db, org: OrgId, after: &str, most: i64) -> db::Result<Vec<(PersonId,)>> {
    let sql = "SELECT id FROM person WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3";
    db.all(sql, params![org, after, most]).await
}

/// Updates the directory after a member left. A person who was not announced is deleted; an announced one stays,
/// switched off.
pub(crate) async fn left(tx: &mut Tx, org: OrgId, account: AccountId) -> db::Result<()> {
    Org::hold(tx, org).await?;
    let sql = "DELETE FROM person WHERE org_id = $1 AND account_id = $2 AND source = 'member' RETURNING place";
    let gone: Vec<(i64,)> = tx.put(sql, params![org, account]).await?;
    for (place,) in gone {
        // The last one moves into the gap.
        let sql = "UPDATE person SET place = $2
                   WHERE org_id = $1 AND place = (SELECT people FROM org WHERE id = $1)";
        tx.exec(sql, params![org, place]).await?;
        tx.exec("UPDATE org SET people = people - 1 WHERE id = $1", params![org]).await?;
    }
    let sql = "UPDATE person SET active = FALSE, account_id = NULL, role = NULL, is_home = FALSE, comes_back = FALSE,
                                 version = version + 1
               WHERE org_id = $1 AND account_id = $2";
    tx.exec(sql, params![org, account]).await?;
    Ok(())
}

/// The account was made by accepting the invitation of an organization whose provider announced the person.
pub async fn found_home(tx: &mut Tx, org: OrgId, account: AccountId) -> db::Result<()> {
    let sql = "UPDATE person SET is_home = TRUE WHERE org_id = $1 AND account_id = $2 AND source = 'scim'";
    tx.exec(sql, params![org, account]).await?;
    Ok(())
}

/// Whether the organization in which an account has its home has switched it off.
pub async fn is_closed(tx: &mut Tx, account: AccountId) -> db::Result<bool> {
    let sql = "SELECT id FROM person WHERE account_id = $1 AND is_home AND NOT active LIMIT 1";
    Ok(tx.opt::<(String,)>(sql, params![account]).await?.is_some())
}

/// How many people there are.
pub async fn count(db: &Db, org: OrgId) -> db::Result<i64> {
    let (people,): (i64,) = db.one("SELECT people FROM org WHERE id = $1", params![org]).await?;
    Ok(people)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_path() {
        let document = json!({
            "userName": "Ada", "name": { "givenName": "Ada" },
            "emails": [{ "value": "a@x.y", "primary": true }, { "value": "b@x.y" }],
            "urn:x:User": { "Department": "D", "manager": { "value": "1" } },
        });
        let mut found: Vec<_> = values_of(&document).into_iter().map(|f| (f.path, f.item, f.value)).collect();
        found.sort();
        let wanted = [
            ("emails.primary", 0, "true"),
            ("emails.value", 0, "a@x.y"),
            ("emails.value", 1, "b@x.y"),
            ("name.givenname", 0, "Ada"),
            ("urn:x:user:department", 0, "D"),
            ("urn:x:user:manager.value", 0, "1"),
            ("username", 0, "Ada"),
        ];
        assert_eq!(found, wanted.map(|(path, item, value)| (path.to_owned(), item, value.to_owned())));
    }
}
