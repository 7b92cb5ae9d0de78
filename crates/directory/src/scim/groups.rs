//! `/scim/v2/Groups`, and what groups do to roles: whoever is in one that stands for a role has it. Which group stands
//! for which role is said by the organization's admins, never by its provider, and owner is none of them.
use std::collections::BTreeSet;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, NoContent, Response},
};
use db::Tx;
use kernel::{
    Janua,
    fault::{CONFLICT, Fault, INVALID, NOT_FOUND, Result},
    http::{Json, Path, Query, Routes},
    jobs::{self, Job, Later},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenancy::{
    enter::{Admin, InOrg, ScimToken},
    events::{self, About, By},
    orgs::{
        Org, OrgId, Role,
        invites::Invite,
        members::OrgMember,
        people::{self, Person, PersonId, Standing},
    },
};

use super::{
    answer::{self, List, PRECONDITION_FAILED, SCIM, Shape, Shown, is_known, must_match},
    document::{self, INVALID_VALUE},
    filter::INVALID_FILTER,
    group::{self, Group, role_of},
    patch::{self, INVALID_PATH, MUTABILITY, NO_TARGET, Patch},
    provision::UNIQUENESS,
    schema::GROUPS,
    search::{self, Asked},
    users::{ResourcePath, Sent, Wanted},
};
use crate::{
    events::MemberRoleChanged,
    scim::events::{GroupDeleted, GroupMapped, GroupPushed, GroupUpdated},
};

pub fn routes() -> Routes {
    Routes::new("scim")
        .get("/scim/v2/Groups", list_groups, "list groups")
        .answers::<List>(200, SCIM)
        .fails(&[INVALID_FILTER])
        .post("/scim/v2/Groups", create_group, "push a group")
        .answers::<Shown>(201, SCIM)
        .fails(&[INVALID_VALUE, UNIQUENESS, NOT_FOUND])
        .post("/scim/v2/Groups/.search", search_groups, "search groups with a request body")
        .answers::<List>(200, SCIM)
        .fails(&[INVALID_FILTER])
        .get("/scim/v2/Groups/{id}", get_group, "get a group")
        .answers::<Shown>(200, SCIM)
        .answers_nothing(304)
        .patch("/scim/v2/Groups/{id}", patch_group, "change a pushed group")
        .answers::<Shown>(200, SCIM)
        .fails(&[INVALID_VALUE, INVALID_PATH, NO_TARGET, MUTABILITY, UNIQUENESS, PRECONDITION_FAILED])
        .put("/scim/v2/Groups/{id}", replace_group, "replace a pushed group")
        .answers::<Shown>(200, SCIM)
        .fails(&[INVALID_VALUE, MUTABILITY, UNIQUENESS, PRECONDITION_FAILED])
        .delete("/scim/v2/Groups/{id}", delete_group, "delete a pushed group")
        .fails(&[MUTABILITY, PRECONDITION_FAILED])
}

pub fn mapping_routes() -> Routes {
    Routes::new("org").get("/org/{id}/scim-groups", list_scim_groups, "groups pushed by SCIM and their roles").patch(
        "/org/{id}/scim-groups/{groupId}",
        map_scim_group,
        "set the role of a pushed group",
    )
}

async fn list_groups(
    State(janua): State<Janua>,
    caller: ScimToken,
    Query(query): Query<search::Query>,
) -> Result<Response> {
    listed(&janua, caller.org, &query.asked()?).await
}

async fn search_groups(
    State(janua): State<Janua>,
    caller: ScimToken,
    Json(request): Json<search::Request>,
) -> Result<Response> {
    listed(&janua, caller.org, &request.asked()?).await
}

async fn listed(janua: &Janua, org: OrgId, asked: &Asked) -> Result<Response> {
    let (total, found) = group::page(&janua.db, org, asked).await?;
    let shown = group::show(janua, org, &found, &asked.shape).await?;
    let shown = shown.into_iter().map(|group| asked.shape.cut(&GROUPS, group)).collect();
    Ok(answer::scim(StatusCode::OK, &List::new(total, asked.start, shown)))
}

async fn show(janua: &Janua, org: OrgId, id: &str, status: StatusCode, shape: &Shape) -> Result<Response> {
    let group = group::one(&janua.db, org, id).await?.ok_or(NOT_FOUND)?;
    let whole = group::show(janua, org, &[group], shape).await?.pop().ok_or(NOT_FOUND)?;
    let (parts, _) = answer::resource(status, &whole).into_parts();
    let mut response = Response::from_parts(parts, answer::scim(status, &shape.cut(&GROUPS, whole)).into_body());
    response.headers_mut().remove(axum::http::header::CONTENT_LENGTH);
    Ok(response)
}

async fn get_group(
    State(janua): State<Janua>,
    caller: ScimToken,
    Path(ResourcePath { id }): Path<ResourcePath<String>>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response> {
    let group = group::one(&janua.db, caller.org, &id).await?.ok_or(NOT_FOUND)?;
    // The groups of roles have no version: their members come and go by other doors.
    if role_of(&id).is_none() && is_known(&headers, group.version) {
        return Ok(StatusCode::NOT_MODIFIED.into_response());
    }
    show(&janua, caller.org, &id, StatusCode::OK, &wanted.shape()).await
}

/// What a document says.
struct Read {
    display_name: String,
    external_id: Option<String>,
    members: BTreeSet<PersonId>,
}

impl Read {
    fn of(document: &Map<String, Value>) -> Result<Self> {
        let text = |name: &str| document.get(name).and_then(Value::as_str).map(|text| text.trim().to_owned());
        let display_name = text("displayName").filter(|name| (1..=256).contains(&name.chars().count()));
        let display_name =
            display_name.ok_or_else(|| INVALID_VALUE.because("displayName must have 1 to 256 characters."))?;
        let external_id = text("externalId").filter(|id| !id.is_empty() && id.len() <= 1024);
        let members = document.get("members").and_then(Value::as_array).into_iter().flatten();
        let member = |one: &Value| one["value"].as_str().and_then(|id| id.parse().ok()).ok_or_else(nobody);
        Ok(Self { display_name, external_id, members: members.map(member).collect::<Result<_>>()? })
    }
}

fn nobody() -> Fault {
    INVALID_VALUE.because("A member is not a user of this organization.")
}

async fn create_group(
    State(janua): State<Janua>,
    caller: ScimToken,
    Query(wanted): Query<Wanted>,
    Json(Sent(sent)): Json<Sent>,
) -> Result<Response> {
    let (now, org) = (janua.clock.now(), caller.org);
    let read = Read::of(&document::read(&GROUPS, &sent)?)?;
    let seats = seats_to_change(&janua, org, &BTreeSet::new(), &read.members).await?;
    let (first, rest) = seats.split_at(seats.len().min(AT_ONCE));
    let group = Group {
        org_id: org,
        id: janua.entropy.uuid(now).to_string(),
        display_name: read.display_name.clone(),
        external_id: read.external_id.clone(),
        role: None,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    transact!(janua, async |tx| {
        if !Org::hold(tx, org).await? {
            return Err(NOT_FOUND.into());
        }
        if role_of(&Group::key(&group.display_name)).is_some() || !group.insert(tx).await? {
            return Err(UNIQUENESS.because("displayName is taken."));
        }
        let event = GroupPushed { group_id: group.id.clone() };
        caller.record(tx, &janua, &event).await?;
        change_seats(tx, &janua, &caller.by, &group, first).await
    })?;
    change_rest(&janua, &caller.by, &group, rest).await?;
    show(&janua, org, &group.id, StatusCode::CREATED, &wanted.shape()).await
}

async fn patch_group(
    State(janua): State<Janua>,
    caller: ScimToken,
    Path(ResourcePath { id }): Path<ResourcePath<String>>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
    Json(patch): Json<Patch>,
) -> Result<Response> {
    change(&janua, &caller, &id, &headers, |mut document| {
        patch::apply(&GROUPS, &mut document, &patch)?;
        Ok(document)
    })
    .await?;
    show(&janua, caller.org, &id, StatusCode::OK, &wanted.shape()).await
}

async fn replace_group(
    State(janua): State<Janua>,
    caller: ScimToken,
    Path(ResourcePath { id }): Path<ResourcePath<String>>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
    Json(Sent(sent)): Json<Sent>,
) -> Result<Response> {
    let document = document::read(&GROUPS, &sent)?;
    change(&janua, &caller, &id, &headers, |_| Ok(document.clone())).await?;
    show(&janua, caller.org, &id, StatusCode::OK, &wanted.shape()).await
}

fn must_be_pushed(id: &str) -> Result<()> {
    if role_of(id).is_some() {
        return Err(MUTABILITY.because("The groups of roles are read-only."));
    }
    Ok(())
}

/// A pushed group to act upon, while nobody else can.
async fn held(tx: &mut Tx, org: OrgId, id: &str) -> Result<Group> {
    must_be_pushed(id)?;
    Org::hold(tx, org).await?;
    Ok(Group::find(&mut *tx, org, id).await?.ok_or(NOT_FOUND)?)
}

async fn change(
    janua: &Janua,
    caller: &ScimToken,
    id: &str,
    headers: &HeaderMap,
    make: impl Fn(Map<String, Value>) -> Result<Map<String, Value>> + Send + Sync,
) -> Result<()> {
    let org = caller.org;
    for _ in 0..TRIES {
        must_be_pushed(id)?;
        // A large group takes a while to read and to compare, and nobody waits for it.
        let group = Group::find(&janua.db, org, id).await?.ok_or(NOT_FOUND)?;
        must_match(headers, group.version)?;
        let before = group.members(&janua.db).await?;
        let read = Read::of(&make(group.document(&before))?)?;
        let is_same = (&read.display_name, &read.external_id) == (&group.display_name, &group.external_id);
        if is_same && read.members == before {
            return Ok(());
        }
        let seats = seats_to_change(janua, org, &before, &read.members).await?;
        let (first, rest) = seats.split_at(seats.len().min(AT_ONCE));
        let changed = transact!(janua, async |tx| {
            let held = held(tx, org, id).await?;
            if held.version != group.version {
                return Ok(None);
            }
            let new = Group {
                display_name: read.display_name.clone(),
                external_id: read.external_id.clone(),
                version: held.version + 1,
                updated_at: janua.clock.now(),
                ..held
            };
            if role_of(&Group::key(&new.display_name)).is_some() || !new.save(tx).await? {
                return Err(UNIQUENESS.because("displayName is taken."));
            }
            let event = GroupUpdated { group_id: new.id.clone() };
            caller.record(tx, janua, &event).await?;
            change_seats(tx, janua, &caller.by, &new, first).await?;
            Ok(Some(new))
        })?;
        if let Some(new) = changed {
            return change_rest(janua, &caller.by, &new, rest).await;
        }
    }
    Err(CONFLICT.into())
}

/// How many members one transaction sees to: on SQLite every other writer waits for it.
const AT_ONCE: usize = 250;
/// How often a group is read again that somebody else has changed meanwhile.
const TRIES: u32 = 5;

/// What is to be done with one person's seat in a group.
enum Seat {
    Take(PersonId),
    Leave(PersonId),
}

impl Seat {
    fn person(&self) -> PersonId {
        match self {
            Self::Take(person) | Self::Leave(person) => *person,
        }
    }
}

/// The difference between two sets of members. Whoever is new must be somebody of the organization.
async fn seats_to_change(
    janua: &Janua,
    org: OrgId,
    before: &BTreeSet<PersonId>,
    after: &BTreeSet<PersonId>,
) -> Result<Vec<Seat>> {
    let mut unknown: BTreeSet<PersonId> = after.difference(before).copied().collect();
    let seats = unknown.iter().copied().map(Seat::Take);
    let seats = seats.chain(before.difference(after).copied().map(Seat::Leave)).collect();
    if unknown.len() <= AT_ONCE {
        for person in &unknown {
            Person::find(&janua.db, org, *person).await?.ok_or_else(nobody)?;
        }
        return Ok(seats);
    }
    let mut after = String::new();
    while !unknown.is_empty() {
        let known = people::ids_after(&janua.db, org, &after, 5_000).await?;
        let (last,) = known.last().ok_or_else(nobody)?;
        after = last.to_string();
        for (person,) in known {
            unknown.remove(&person);
        }
    }
    Ok(seats)
}

async fn change_seats(tx: &mut Tx, janua: &Janua, by: &By, group: &Group, seats: &[Seat]) -> Result<()> {
    for seat in seats {
        match seat {
            Seat::Take(person) => group.seat(tx, *person).await?,
            Seat::Leave(person) => group.unseat(tx, *person).await?,
        }
    }
    if group.role.is_some() {
        for seat in seats {
            if let Some(standing) = Standing::of(tx, group.org_id, seat.person()).await? {
                give_role(tx, janua, by, group.org_id, &standing).await?;
            }
        }
    }
    Ok(())
}

/// What is more than one transaction should see to. Whoever asked for it waits for all of it. Should it end on the way,
/// asking again does the rest.
async fn change_rest(janua: &Janua, by: &By, group: &Group, seats: &[Seat]) -> Result<()> {
    for some in seats.chunks(AT_ONCE) {
        transact!(janua, async |tx| {
            let now = held(tx, group.org_id, &group.id).await?;
            if now.version != group.version {
                return Err(CONFLICT.into());
            }
            change_seats(tx, janua, by, &now, some).await
        })?;
    }
    Ok(())
}

async fn delete_group(
    State(janua): State<Janua>,
    caller: ScimToken,
    Path(ResourcePath { id }): Path<ResourcePath<String>>,
    headers: HeaderMap,
) -> Result<NoContent> {
    let mut version = None;
    loop {
        let is_gone = transact!(janua, async |tx| {
            let group = held(tx, caller.org, &id).await?;
            must_match(&headers, group.version)?;
            if version.is_some_and(|version| version != group.version) {
                return Err(CONFLICT.into());
            }
            version = Some(group.version);
            // One more than is seen to tells whether there are others.
            let mut members = Standing::in_group(tx, caller.org, &id, "", AT_ONCE + 1).await?;
            let is_last = members.len() <= AT_ONCE;
            members.truncate(AT_ONCE);
            if is_last {
                group.delete(tx).await?;
            }
            let seats: Vec<_> = members.into_iter().map(|member| Seat::Leave(member.person_id)).collect();
            change_seats(tx, &janua, &caller.by, &group, &seats).await?;
            if is_last {
                let event = GroupDeleted { group_id: id.clone() };
                caller.record(tx, &janua, &event).await?;
            }
            Ok(is_last)
        })?;
        if is_gone {
            return Ok(NoContent);
        }
    }
}

/// Gives somebody the role their groups stand for, or makes them a member again. Owners are left alone.
async fn give_role(tx: &mut Tx, janua: &Janua, by: &By, org: OrgId, standing: &Standing) -> Result<()> {
    let (Some(account), Some(old)) = (standing.account_id, standing.role.filter(|role| *role != Role::Owner)) else {
        return Ok(());
    };
    let role = if standing.is_admin_by_groups { Role::Admin } else { Role::Member };
    if role != old {
        OrgMember::set_role(tx, org, account, role).await?;
        Invite::withdraw(tx, org, account, Some(role)).await?;
        let event = MemberRoleChanged { from: old, to: role };
        events::record(tx, janua, by, About::in_org(org).person(account), &event).await?;
    }
    Ok(())
}

/// Gives the next members of a group their roles; answers the last of them if there may be more.
async fn give_roles(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    org: OrgId,
    group: &str,
    after: &str,
) -> Result<Option<String>> {
    let members = Standing::in_group(tx, org, group, after, AT_ONCE).await?;
    for member in &members {
        give_role(tx, janua, by, org, member).await?;
    }
    let last = members.last().filter(|_| members.len() == AT_ONCE);
    Ok(last.map(|member| member.person_id.to_string()))
}

/// Gives the members of a large group the roles their groups stand for by now, some at a time.
#[derive(Serialize, Deserialize)]
pub struct GiveRoles {
    org: OrgId,
    group: String,
    by: By,
    /// Members up to this one have theirs.
    after: String,
}

impl Job for GiveRoles {
    const KIND: &'static str = "directory.give_roles";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let (org, mut after) = (self.org, Some(self.after.clone()));
        while let Some(last) = after {
            after = transact!(janua, async |tx| {
                if !Org::hold(tx, org).await? {
                    return Ok(None);
                }
                give_roles(tx, &janua, &self.by, org, &self.group, &last).await
            })?;
        }
        Ok(())
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PushedGroup {
    id: String,
    display_name: String,
    external_id: Option<String>,
    /// The role of its members in the organization; null for none.
    role: Option<Role>,
}

impl From<Group> for PushedGroup {
    fn from(group: Group) -> Self {
        let Group { id, display_name, external_id, role, .. } = group;
        Self { id, display_name, external_id, role }
    }
}

#[derive(Serialize, JsonSchema)]
struct PushedGroups {
    groups: Vec<PushedGroup>,
}

async fn list_scim_groups(State(janua): State<Janua>, caller: InOrg<Admin>) -> Result<Json<PushedGroups>> {
    let groups = Group::pushed(&janua.db, caller.org().id).await?.into_iter().map(Into::into).collect();
    Ok(Json(PushedGroups { groups }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WhichGroup {
    group_id: String,
}

#[derive(Deserialize, JsonSchema)]
struct Mapping {
    /// `admin`, `member`, or `null` for no role.
    role: Option<Role>,
}

async fn map_scim_group(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Path(WhichGroup { group_id }): Path<WhichGroup>,
    Json(Mapping { role }): Json<Mapping>,
) -> Result<Json<PushedGroup>> {
    if role == Some(Role::Owner) {
        return Err(INVALID.at("role", "not_allowed", "must not be owner"));
    }
    // It makes admins, so it is not for an app its people use.
    if caller.session.living.session.app_id.is_some() {
        return Err(kernel::fault::FORBIDDEN.into());
    }
    let (org, by) = (caller.org().id, caller.session.by());
    let group = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let group = Group::find(&mut *tx, org, &group_id).await?.ok_or(NOT_FOUND)?;
        let new = Group { role, updated_at: janua.clock.now(), ..group };
        new.save(tx).await?;
        let event = GroupMapped { group_id: new.id.clone(), role };
        caller.record(tx, &janua, &event).await?;
        // The first of them at once, so that in most organizations nobody has to wait; the others by a job.
        if let Some(after) = give_roles(tx, &janua, &by, org, &new.id, "").await? {
            let rest = GiveRoles { org, group: new.id.clone(), by: by.clone(), after };
            jobs::enqueue(tx, &janua, janua.clock.now(), &rest).await?;
        }
        Ok(new)
    })?;
    Ok(Json(group.into()))
}
