for (const plan of document.querySelectorAll('.argand-plan:not([data-ready])')) {
  plan.dataset.ready = '';
  const series = [...plan.querySelectorAll('[data-series]')], tip = plan.querySelector('.tip'), hint = tip.textContent;
  const name = event => event.target.closest('[data-series]')?.dataset.series;
  const point = chosen => {
    for (const element of series) {
      const own = element.dataset.series === chosen;
      element.classList.toggle('dim', Boolean(chosen) && !own && element.tagName === 'g');
      element.classList.toggle('near', own && element.tagName === 'DETAILS');
      if (own && element.tagName === 'DETAILS') tip.textContent = element.querySelector('summary').textContent.replace(/\s+/g, ' ').trim();
    }
    if (!chosen) tip.textContent = hint;
  };
  plan.addEventListener('pointerover', event => point(name(event)));
  plan.addEventListener('pointerleave', () => point());
  plan.addEventListener('click', event => {
    const button = event.target.closest('button');
    if (button) {
      const text = button.parentElement.querySelector('pre');
      const done = () => { button.textContent = 'Copied'; setTimeout(() => { button.textContent = 'Copy'; }, 1500); };
      const by_selection = () => {
        getSelection().selectAllChildren(text);
        if (document.execCommand('copy')) done();
      };
      if (navigator.clipboard) navigator.clipboard.writeText(text.textContent).then(done, by_selection);
      else by_selection();
    } else if (!event.target.closest('details')) {
      const chosen = series.find(element => element.tagName === 'DETAILS' && element.dataset.series === name(event));
      if (chosen) { chosen.open = true; chosen.scrollIntoView({ block: 'nearest' }); }
    }
  });
}
