"""Documents: conversion of files to text (`extract`), and reading folders (`read_folder`)."""
