//! The routes of machines themselves, and the one by which services report what a machine spends.
use axum::extract::State;
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Result},
    http::{Json, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::AccountId,
    apps::{ApplicationId, KeyKind},
    enter::{AppKey, SECRET_KEY_REQUIRED},
    events::By,
    machines::{
        Kind, LimitView, Machine, MachineId, MachineToken, State as MachineState,
        limits::{self, NewSpending, Outcome},
        tokens::{self, Recognised},
    },
    orgs::OrgId,
    sessions::{audience::Audience, sign_in::Typed},
};

const INVALID_TOKEN: Code = Code::new(400, "invalid_token", "The token is invalid, or is not for this app.");
const SPENDING_CONFLICT: Code =
    Code::new(409, "spending_conflict", "This idempotencyKey was used with another meter or amount.");

pub fn routes() -> Routes {
    Routes::new("agents")
        .get("/machine/me", me, "the machine of this token: its state, scopes and limits")
        .post("/machine/spend", spend, "count spending of a machine against its limits")
        .fails(&[SECRET_KEY_REQUIRED, INVALID_TOKEN, SPENDING_CONFLICT])
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MachineMe {
    id: MachineId,
    #[serde(rename = "type")]
    kind: Kind,
    name: String,
    status: MachineState,
    org_id: OrgId,
    owner_id: Option<AccountId>,
    /// The user for whom the machine acts.
    subject: Option<AccountId>,
    /// The scopes of this token.
    scope: String,
    audience: Audience,
    expires_at: Timestamp,
    limits: Vec<LimitView>,
}

async fn me(
    State(janua): State<Janua>,
    MachineToken(Recognised { claims, machine, living }): MachineToken,
) -> Result<Json<MachineMe>> {
    let now = janua.clock.now();
    Ok(Json(MachineMe {
        id: machine.id,
        kind: machine.kind,
        name: machine.name.clone(),
        status: machine.state_at(now),
        org_id: machine.org_id,
        owner_id: machine.owner_id,
        subject: living.map(|living| living.person.account.id),
        scope: claims.scope.clone(),
        audience: claims.aud.clone(),
        expires_at: Timestamp(claims.exp * 1000),
        limits: limits::view(&janua.db, &machine, now).await?,
    }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Spend {
    /// The token that the machine called your service with.
    #[schemars(with = "String", length(max = 8192))]
    token: Typed,
    /// `spend` for money in minor units, or any other meter.
    #[schemars(regex(pattern = "^[a-z][a-z0-9_.-]{0,63}$"))]
    meter: String,
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_i64))]
    amount: i64,
    /// The purpose, as the log shows it.
    #[schemars(length(max = 200))]
    action: Option<String>,
    /// A repetition with the same key is not counted again.
    #[schemars(length(min = 1, max = 128))]
    idempotency_key: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SpendAnswer {
    /// Whether it was counted. If not, refuse what the machine asked of you.
    allowed: bool,
    /// The remaining amount of the tightest limit; null where no limit is on the meter.
    remaining: Option<i64>,
    resets_at: Option<Timestamp>,
}

async fn spend(
    State(janua): State<Janua>,
    AppKey(keyed): AppKey,
    Json(new): Json<Spend>,
) -> Result<Json<SpendAnswer>> {
    if keyed.kind != KeyKind::Secret {
        return Err(SECRET_KEY_REQUIRED.into());
    }
    let found = tokens::recognise(&janua, new.token.0.expose()).await?.ok_or(INVALID_TOKEN)?;
    if !found.may_be_asked_by(&janua, &keyed).await? {
        return Err(INVALID_TOKEN.into());
    }
    let report = Report {
        janua: janua.clone(),
        machine: found.machine.id,
        generation: found.claims.generation,
        app: keyed.app_id,
        spend: new,
    };
    let outcome = janua.carry(report, |tx, report| Box::pin(report.count(tx))).await?;
    let (allowed, left) = match outcome {
        Outcome::Counted(left) => (true, left),
        Outcome::Refused(left) => (false, Some(left)),
    };
    let (remaining, resets_at) = (left.map(|left| left.remaining), left.map(|left| left.resets_at));
    Ok(Json(SpendAnswer { allowed, remaining, resets_at }))
}

/// What a service says that a machine spent.
struct Report {
    janua: Janua,
    machine: MachineId,
    generation: i64,
    app: ApplicationId,
    spend: Spend,
}

impl Report {
    async fn count(&self, tx: &mut Tx) -> Result<Outcome> {
        let Self { janua, spend, .. } = self;
        let spending = NewSpending {
            app: self.app,
            meter: &spend.meter,
            amount: spend.amount,
            action: spend.action.as_deref(),
            repeat_key: spend.idempotency_key.as_deref(),
        };
        // Held, so that what counts here is what the machine is in this commit.
        let mut machine = Machine::hold(tx, self.machine).await?.ok_or(INVALID_TOKEN)?;
        if let Some((meter, amount)) = limits::was_spent(tx, self.machine, &spending).await? {
            if (meter.as_str(), amount) != (spending.meter, spending.amount) {
                return Err(SPENDING_CONFLICT.into());
            }
            return Ok(Outcome::Counted(limits::left(tx, &machine, spending.meter, janua.clock.now()).await?));
        }
        if !machine.accepts(self.generation, janua.clock.now()) {
            return Err(INVALID_TOKEN.into());
        }
        let by = By { app: Some(self.app), ..By::default() };
        let outcome = limits::count(tx, janua, &by, &mut machine, spending.meter, spending.amount).await?;
        if matches!(outcome, Outcome::Counted(_)) {
            limits::note_spending(tx, janua, self.machine, &spending).await?;
        }
        Ok(outcome)
    }
}
