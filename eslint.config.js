import js from '@eslint/js';

const MARKUP = ['innerHTML', 'outerHTML', 'insertAdjacentHTML'];

export default [
  js.configs.recommended,
  {
    rules: {
      'no-undef': 'off', // tsc knows all names
      'no-control-regex': 'off', // output of terminals has such characters
      'no-restricted-properties': [
        'error',
        ...MARKUP.map(property => ({ property, message: 'Text must never become markup: build elements with el().' })),
        { property: 'replaceChildren', message: 'Use reconcile(), which keeps focus and selection, or fill().' },
      ],
      'no-restricted-syntax': [
        'error',
        {
          selector: 'TemplateElement[value.raw=/\\n/]',
          message: 'The pages are served line by line, without indentation.',
        },
      ],
      'no-unused-vars': ['error', { varsIgnorePattern: '^_', argsIgnorePattern: '^_' }],
      'no-shadow': 'error',
      'no-var': 'error',
      'prefer-const': ['error', { destructuring: 'all' }],
      eqeqeq: 'error',
    },
  },
];
