//! The proof of work, on a page: the challenge is drawn into it, the script solves it, and the form brings the solution.
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Fault, Result},
    transact,
};
use tenancy::enter::{CAPTCHA_REQUIRED, Captcha, Visitor};

use crate::form::Fields;

/// The visitor brings along what was solved on the page.
pub async fn solved(janua: &Janua, visitor: &mut Visitor, form: &Fields) -> Result<()> {
    if form.says("captcha") {
        let solution = Secret::from(form.get("captcha").to_owned());
        visitor.bring(transact!(janua, async |tx| Captcha::redeem(tx, janua, &solution).await)?);
    }
    Ok(())
}

/// Weighs a visitor where there is nothing to guess: who comes too often is sent away, but nobody solves anything, since a
/// link has no form to bring a solution in.
pub async fn weigh(janua: &Janua, visitor: &Visitor) -> Result<()> {
    admits(janua, visitor).await.map(drop)
}

/// Whether a link may do at once what its page has a button for. Where a solution is needed, the form of the button brings
/// it.
pub async fn admits(janua: &Janua, visitor: &Visitor) -> Result<bool> {
    match visitor.admit(janua, None).await {
        Err(fault) if fault.code() == CAPTCHA_REQUIRED => Ok(false),
        weighed => weighed.map(|()| true),
    }
}

/// Admits a visitor with what was solved on the page, if anything was.
pub async fn admit(janua: &Janua, visitor: &mut Visitor, solution: Option<&Secret>) -> Result<()> {
    if let Some(solution) = solution.filter(|solution| !solution.expose().is_empty()) {
        visitor.bring(transact!(janua, async |tx| Captcha::redeem(tx, janua, solution).await)?);
    }
    visitor.admit(janua, None).await
}

/// The route that the solution of a refusal's challenge is for: the action of the form that has to bring it.
pub fn action(fault: &Fault) -> Option<String> {
    let is_one = fault.code() == CAPTCHA_REQUIRED;
    let challenge = fault.extra("challenge").filter(|_| is_one)?;
    challenge["parameters"]["data"]["route"].as_str().map(str::to_owned)
}

/// The challenge of a refusal that has one.
pub fn challenge(fault: &Fault) -> Option<String> {
    let is_one = fault.code() == CAPTCHA_REQUIRED;
    fault.problem("").extra.get("challenge").filter(|_| is_one).map(ToString::to_string)
}
