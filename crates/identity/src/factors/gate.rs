//! The second half of a sign-in: a ticket and a code for a session.
use axum::{extract::State, response::Response};
use db::Reach;
use kernel::{
    Janua,
    fault::{Code, Result},
    http::{Json, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    accounts::{
        Account,
        factors::{self, Factor, MFA_TICKET},
    },
    enter::{ACCOUNT_TOPIC, ToAdmit, Visitor},
    messages::mail::{self, Origin},
    once::{self, TOKEN_SPENT},
    sessions::sign_in::{self, CompletedSignIn, Entered, SignedIn, Typed},
};

use crate::{
    BODY,
    events::{RecoveryCodeUsed, SignInFailed},
    mails::FactorChanged,
};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(BODY)
        .post("/auth/2fa/login-verify", login_verify, "verify a TOTP code during login")
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED])
        .answers::<SignedIn>(200, "application/json")
        .fails(&[TOKEN_SPENT, INVALID_CODE])
}

const INVALID_CODE: Code = Code::new(401, "invalid_code", "The code is wrong, has expired or was already used.");

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Verify {
    mfa_ticket: Typed,
    /// Six digits of an app or a phone, or a recovery code.
    code: Typed,
    /// Which factor the code is of, where that is known.
    factor: Option<Factor>,
    /// Asks for no second factor on this device for thirty days.
    #[serde(default)]
    trust_device: bool,
}

async fn login_verify(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    Json(body): Json<Verify>,
) -> Result<Response> {
    pass(&janua, &visitor, &body.mfa_ticket, &body.code, body.factor, body.trust_device).await?.answer(&janua)
}

/// The same for programs and for the page.
pub async fn pass(
    janua: &Janua,
    visitor: &Visitor,
    ticket: &Typed,
    code: &Typed,
    factor: Option<Factor>,
    trust_device: bool,
) -> Result<CompletedSignIn> {
    let (now, ticket) = (janua.clock.now(), &ticket.0);
    // Looked at first: where it does not belong it is not used up either.
    let known = once::look(&janua.db, MFA_TICKET, ticket, now).await?;
    let id = known.and_then(|known| sign_in::holder_of(janua, visitor, &known)).ok_or(TOKEN_SPENT)?;
    once::attempt(&janua.db, MFA_TICKET, ticket, now).await?.ok_or(TOKEN_SPENT)?;
    let attempt = visitor.attempt_factor(janua, id).await?;
    let entered = transact!(janua, async |tx| {
        let account = Account::find(tx, id).await?.ok_or(TOKEN_SPENT)?;
        let Some(factor) = factors::prove(tx, janua, id, &code.0, factor).await? else {
            // Committed: a wrong code counts against the right one, and the person can see that there was one.
            let failed = SignInFailed { reason: "wrong_code" };
            visitor.record_about(tx, janua, id, &failed).await?;
            return Ok(None);
        };
        let spent = once::spend(tx, MFA_TICKET, ticket, now).await?.ok_or(TOKEN_SPENT)?;
        attempt.forgive(tx).await?;
        if factor == Factor::Recovery {
            recovered(tx, janua, visitor, &account).await?;
        }
        let entered = sign_in::pass(tx, janua, visitor, account, &spent, factor, trust_device).await?;
        Ok(Some(entered.ok_or(TOKEN_SPENT)?))
    })?;
    match entered.ok_or(INVALID_CODE)? {
        Entered::In(person) => Ok(*person),
        Entered::Refused(code) => Err(code.into()),
        Entered::Waiting(_) => Err(TOKEN_SPENT.into()),
    }
}

/// A recovery code is for emergencies, so the person is told that one was used.
async fn recovered(tx: &mut db::Tx, janua: &Janua, visitor: &Visitor, account: &Account) -> Result<()> {
    visitor.record_about(tx, janua, account.id, &RecoveryCodeUsed).await?;
    // How many are left is remembered with the person's other sessions.
    tx.notify(Reach::EveryNode, ACCOUNT_TOPIC, account.id.to_string()).await?;
    if let Some(email) = &account.email {
        let origin = Origin::new(&visitor.by, janua.clock.now());
        let what = "One of your recovery codes was used to sign in.";
        mail::send(tx, janua, email, &FactorChanged { name: account.name.clone(), what, origin }).await?;
    }
    Ok(())
}
