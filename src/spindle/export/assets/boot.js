// Runs before the first paint: says that scripts work, applies the remembered theme, holds the rest back.
document.documentElement.classList.add('js');
try {
  const theme = localStorage.getItem('spindle-theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch { /* a page opened from disk may have no storage */ }

/** Run `main` once the plain transcript is painted; in a tab that nobody looks at no frame comes, so do not wait for ever. */
function afterPaint(main) {
  let begun = false;
  const begin = () => {
    if (!begun) main();
    begun = true;
  };
  requestAnimationFrame(() => setTimeout(begin));
  setTimeout(begin, 400);
}
