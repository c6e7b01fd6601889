(() => {
  "use strict";
  let kept = null;
  try { kept = localStorage.getItem("kernelgate-theme"); } catch { /* none is kept here */ }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
