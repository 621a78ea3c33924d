// A convenience only: the form is complete without it. Touching a number chooses "own numbers",
// and choosing anything else keeps a half-typed number from blocking the start.
(() => {
  const own = document.getElementById("gaia-option-own");
  const fields = [...document.querySelectorAll(".gaia-numbers input")];
  if (!own || own.disabled || !fields.length) return;
  const follow = () => fields.forEach((field) => { field.form.noValidate = !own.checked; });
  fields.forEach((field) => field.addEventListener("input", () => { own.checked = true; follow(); }));
  document.querySelectorAll(".gaia-radio").forEach((radio) => radio.addEventListener("change", follow));
  follow();
})();
