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
    match visitor.admit(janua, None).await {
        Err(fault) if fault.code() == CAPTCHA_REQUIRED => Ok(()),
        weighed => weighed,
    }
}

/// The challenge of a refusal that has one.
pub fn challenge(fault: &Fault) -> Option<String> {
    let is_one = fault.code() == CAPTCHA_REQUIRED;
    fault.problem("").extra.get("challenge").filter(|_| is_one).map(ToString::to_string)
}
