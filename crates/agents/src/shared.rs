//! What registering, showing and listing have in common for all kinds of machines.
use db::{Read, Tx};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{FORBIDDEN, Fault, INVALID, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Scope},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use tenancy::{
    accounts::AccountId,
    enter::{self, Session},
    machines::{
        Kind, LIMIT_REACHED, LimitView, MOST_OF_ORG, Machine, MachineId, MachineLimit, State, SuspendedBy, limits,
        log::LogEntry, targets,
    },
    orgs::{Membership, Org, OrgId, Role},
    quotas::{self, Limit, Meter, Period, Used},
};

/// How many machines of all kinds the plan of an organization allows. They are counted when one is created.
pub const AGENTS: Meter = Meter::platform("agents", "agents", Period::Gauge);

/// The settings of a machine.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permissions {
    /// Up to 50, such as `orders:read`.
    #[schemars(length(max = 50))]
    pub scopes: Option<Vec<String>>,
    /// URLs of servers that tokens may be for. A token counts at one of them or below it.
    #[schemars(length(max = 20))]
    pub audiences: Option<Vec<String>>,
    #[schemars(length(max = 10))]
    pub limits: Option<Vec<MachineLimit>>,
    /// `null` removes it.
    #[serde(default, deserialize_with = "given")]
    #[expect(clippy::option_option, reason = "null and a missing field mean different things")]
    pub expires_at: Option<Option<Timestamp>>,
}

/// Tells null from a missing field.
#[expect(clippy::option_option, reason = "null and a missing field mean different things")]
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<Timestamp>>, D::Error> {
    Option::deserialize(from).map(Some)
}

pub fn is_scope(scope: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ":._/-".contains(c);
    (1..=64).contains(&scope.len())
        && scope.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && scope.chars().all(is_inner)
}

impl Permissions {
    /// Every field that is wrong.
    pub fn check(&self, now: Timestamp) -> Result<()> {
        let mut wrong: Vec<(String, &str, &str)> = vec![];
        for (i, scope) in self.scopes.iter().flatten().enumerate() {
            if !is_scope(scope) {
                let message = "must have 1 to 64 lower case letters, digits and : . _ / -";
                wrong.push((format!("scopes.{i}"), "wrong_form", message));
            }
        }
        for (i, audience) in self.audiences.iter().flatten().enumerate() {
            if targets::resource(audience).is_none_or(|url| url.query().is_some()) {
                wrong.push((format!("audiences.{i}"), "wrong_form", "must be an https URL, or http on this machine"));
            }
        }
        let limits = self.limits.as_deref().unwrap_or_default();
        for (i, limit) in limits.iter().enumerate() {
            if limits[..i].iter().any(|before| before.meter == limit.meter && before.per == limit.per) {
                wrong.push((format!("limits.{i}"), "repeated", "there is another limit on this meter and window"));
            }
        }
        if self.expires_at.flatten().is_some_and(|at| at <= now) {
            wrong.push(("expiresAt".into(), "too_early", "must be in the future"));
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let all = wrong.into_iter();
        Err(all.fold(Fault::from(INVALID), |fault, (field, code, message)| fault.and(field, code, message)))
    }

    /// Writes what was given.
    pub fn apply(self, machine: &mut Machine) {
        let unique = |list: Vec<String>| {
            let mut kept: Vec<String> = vec![];
            for one in list {
                if !kept.contains(&one) {
                    kept.push(one);
                }
            }
            kept
        };
        if let Some(scopes) = self.scopes {
            machine.scopes = unique(scopes);
        }
        if let Some(audiences) = self.audiences {
            machine.audiences = unique(audiences);
        }
        if let Some(limits) = self.limits {
            machine.limits = limits;
        }
        machine.expires_at = self.expires_at.unwrap_or(machine.expires_at);
    }
}

/// A name as it is shown.
pub fn check_name(name: &str) -> Result<String> {
    let name = name.trim();
    if (1..=100).contains(&name.chars().count()) && !name.chars().any(char::is_control) {
        return Ok(name.to_owned());
    }
    Err(INVALID.at("name", "wrong_form", "must have 1 to 100 characters"))
}

/// A new machine of a user, not stored yet.
pub fn draft(janua: &Janua, kind: Kind, org_id: OrgId, owner: AccountId, name: String, state: State) -> Machine {
    let now = janua.clock.now();
    Machine {
        id: MachineId::new(&janua.entropy, now),
        kind,
        org_id,
        owner_id: Some(owner),
        name,
        description: None,
        state,
        suspended_by: None,
        suspended_reason: None,
        suspended_at: None,
        scopes: vec![],
        audiences: vec![],
        limits: vec![],
        jwks: None,
        jwks_uri: None,
        redirect_uris: vec![],
        generation: 1,
        created_at: now,
        updated_at: now,
        proven_at: None,
        last_used_at: None,
        expires_at: None,
    }
}

/// The organization of a new machine: the named one, the one the session acts for, or one of the user's own. It is held, so
/// that two at once do not pass the limit together.
pub async fn home(tx: &mut Tx, janua: &Janua, session: &Session, wanted: Option<OrgId>) -> Result<OrgId> {
    let account = session.account().id;
    let org = match wanted {
        Some(org) => Membership::of(&mut *tx, org, account).await?.ok_or(NOT_FOUND)?.org.id,
        None => match Membership::active(tx, account).await? {
            Some(found) => session.org().map_or(found.org.id, |active| active.org.id),
            None => enter::create_own_org(tx, janua, session).await?.org.id,
        },
    };
    if !Org::hold(tx, org).await? {
        return Err(NOT_FOUND.into());
    }
    let count = Machine::count(tx, org).await?;
    if count >= MOST_OF_ORG {
        return Err(LIMIT_REACHED.into());
    }
    if let Some((plan, limit)) = quotas::limit_of(tx, janua, org, &AGENTS).await?
        && limit.as_ref().and_then(Limit::ceiling).is_some_and(|most| count >= most)
    {
        return Err(quotas::exceeded(janua, org, &AGENTS, &Used { plan, used: Some(count), limit }));
    }
    Ok(org)
}

/// Fields that every kind of machine has.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineView {
    pub id: MachineId,
    pub name: String,
    pub description: Option<String>,
    pub status: State,
    pub suspended_by: Option<SuspendedBy>,
    pub suspended_reason: Option<String>,
    pub suspended_at: Option<Timestamp>,
    pub scopes: Vec<String>,
    pub audiences: Vec<String>,
    pub limits: Vec<LimitView>,
    pub org_id: OrgId,
    pub owner_id: Option<AccountId>,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
}

impl MachineView {
    pub async fn of(janua: &Janua, from: impl Read, machine: &Machine) -> db::Result<Self> {
        let now = janua.clock.now();
        Ok(Self {
            id: machine.id,
            name: machine.name.clone(),
            description: machine.description.clone(),
            status: machine.state_at(now),
            suspended_by: machine.suspended_by,
            suspended_reason: machine.suspended_reason.clone(),
            suspended_at: machine.suspended_at,
            scopes: machine.scopes.clone(),
            audiences: machine.audiences.clone(),
            limits: limits::view(from, machine, now).await?,
            org_id: machine.org_id,
            owner_id: machine.owner_id,
            created_at: machine.created_at,
            last_used_at: machine.last_used_at,
            expires_at: machine.expires_at,
        })
    }
}

/// Which machines a list has.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListQuery {
    state: Option<State>,
    /// All machines of an organization, for its admins. Default: the caller's own.
    org_id: Option<OrgId>,
}

/// A list that the caller may see, as parameters of its statement.
pub struct Selection {
    pub owner: String,
    pub org: String,
    pub state: String,
    scope: Scope,
}

impl Selection {
    pub async fn of(janua: &Janua, session: &Session, query: &ListQuery) -> Result<Self> {
        let account = session.account().id;
        let state = query.state.map(|state| state.name().to_owned()).unwrap_or_default();
        let Some(org) = query.org_id else {
            let scope = Scope::from(account).found_by(&state);
            return Ok(Self { owner: account.to_string(), org: String::new(), state, scope });
        };
        let role = Membership::of(&janua.db, org, account).await?.ok_or(NOT_FOUND)?.role;
        if role < Role::Admin {
            return Err(FORBIDDEN.into());
        }
        let scope = Scope::from(org).found_by(&state);
        Ok(Self { owner: String::new(), org: org.to_string(), state, scope })
    }

    /// The one of a list's two statements that reads it.
    pub const fn statement(&self, [of_owner, of_org]: [&'static str; 2]) -> &'static str {
        if self.org.is_empty() { of_owner } else { of_org }
    }

    /// Reads one page of a list of machines.
    pub async fn list<T>(
        self,
        janua: &Janua,
        page: &Page,
        name: &'static str,
        fetch: impl AsyncFnOnce(&Self, Key, u32) -> db::Result<Vec<T>>,
        machine: impl Fn(&T) -> &Machine,
    ) -> Result<Listed<T>> {
        let key = |one: &T| Key { at: machine(one).created_at, id: machine(one).id.to_string() };
        let Self { owner, org, state, scope } = self;
        let chosen = Self { owner, org, state, scope: Scope::platform() };
        page.list(janua, name, scope, async |below, most| fetch(&chosen, below, most).await, key).await
    }
}

/// The statements of a list, of an owner and of an organization: `$1` owner, `$2` organization, `$3` state, `$4` now, `$5` and
/// `$6` the key, `$7` how many.
#[macro_export]
macro_rules! machines_of {
    ($columns:literal, $join:literal, $kind:literal) => {
        [
            $crate::machines_where!($columns, $join, $kind, "machine.owner_id = $1 AND $2 = ''"),
            $crate::machines_where!($columns, $join, $kind, "machine.org_id = $2 AND $1 = ''"),
        ]
    };
}

#[macro_export]
macro_rules! machines_where {
    ($columns:literal, $join:literal, $kind:literal, $whose:literal) => {
        concat!(
            "SELECT machine.*, ",
            $columns,
            " FROM machine JOIN ",
            $join,
            " WHERE machine.kind = '",
            $kind,
            "' AND ",
            $whose,
            " AND ($3 = '' OR $3 = CASE WHEN machine.state <> 'suspended' AND machine.expires_at IS NOT NULL
                                          AND machine.expires_at <= $4 THEN 'expired' ELSE machine.state END)
               AND (machine.created_at, machine.id) < ($5, $6)
             ORDER BY machine.created_at DESC, machine.id DESC LIMIT $7"
        )
    };
}

/// A page of the log of a machine.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineLog {
    pub logs: Vec<LogEntry>,
    pub next_cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub struct LogQuery {
    /// Only events of this type, such as `AGENT_TOKEN_ISSUED`.
    #[serde(rename = "type")]
    #[schemars(length(max = 64))]
    kind: Option<String>,
}

pub async fn log(janua: &Janua, page: &Page, id: MachineId, query: LogQuery) -> Result<Json<MachineLog>> {
    let kind = query.kind.unwrap_or_default();
    let scope = Scope::from(id).found_by(&kind);
    let fetch = async |below, most| LogEntry::page(&janua.db, id, &kind, &below, most).await;
    let Listed { rows, next_cursor } = page.list(janua, "machine-log", scope, fetch, LogEntry::key).await?;
    Ok(Json(MachineLog { logs: rows, next_cursor }))
}

/// The reason of a suspension.
#[derive(Default, Deserialize, JsonSchema)]
pub struct SuspendReason {
    #[schemars(length(max = 500))]
    pub reason: Option<String>,
}

/// A token of a machine.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenAnswer {
    pub access_token: String,
    /// `Bearer`.
    pub token_type: &'static str,
    /// Seconds.
    pub expires_in: i64,
    /// Separated by spaces.
    pub scope: String,
}

impl From<tenancy::machines::tokens::Issued> for TokenAnswer {
    fn from(issued: tenancy::machines::tokens::Issued) -> Self {
        Self {
            access_token: issued.access_token,
            token_type: "Bearer",
            expires_in: issued.expires_in,
            scope: issued.scope,
        }
    }
}
