// Runs before the first paint, after theme.js: says that scripts work, and holds the rest back.
document.documentElement.classList.add('js');

/**
 * Run `main` once the plain transcript is painted; a tab in the background gets no frame, so do not wait for ever.
 * @param {Act} main
 */
// eslint-disable-next-line no-unused-vars -- the page's one script begins with it
function afterPaint(main) {
  let begun = false;
  const begin = () => {
    if (!begun) main();
    begun = true;
  };
  requestAnimationFrame(() => setTimeout(begin));
  setTimeout(begin, 400);
}
