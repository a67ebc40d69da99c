"use strict";

// Without this the page works the same, by mouse or by Tab.
{
  const proposals = [...document.querySelectorAll(".memorygw-review fieldset")];
  const choices = {a: "approve", r: "reject", l: "later"};
  const at = () => proposals.findIndex((proposal) => proposal.contains(document.activeElement));
  const move = (to) => proposals[Math.max(0, Math.min(to, proposals.length - 1))].focus();

  const choose = (proposal, value) => {
    proposal.querySelector(`input[value="${value}"]`).checked = true;
    move(proposals.indexOf(proposal) + 1);
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("textarea, select, input:not([type=radio])")) return;
    const current = at();
    if (event.key === "j") move(current + 1);
    else if (event.key === "k") move(current - 1);
    else if (event.key in choices && current >= 0) choose(proposals[current], choices[event.key]);
    else return;
    event.preventDefault();
  });
}
